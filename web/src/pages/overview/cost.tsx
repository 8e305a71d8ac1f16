// One line with the cost of this month, if machines have a price.

import { formatMoney, formatShare, plural } from "@stillwake/ui/format.ts";
import { Link } from "wouter";
import type { api } from "../../api/resources.ts";
import "../../css/cost.css";

export function MonthCost({ report }: { report: api.CostReport | undefined }) {
  if (!report || (report.total.amount === 0 && report.idlePools.length === 0)) return null;
  const { amount, jobs, machines, busySeconds, idleSeconds } = report.total;
  const stoppedCost = report.idlePools.reduce((sum, { perMonth }) => sum + perMonth, 0);
  return (
    <p className="month-cost">
      <span>
        <strong className="number">{formatMoney(amount)}</strong> this month for {plural(machines, "machine")} and{" "}
        {plural(jobs, "job")}
      </span>
      {busySeconds + idleSeconds > 0 && (
        <span className="soft">{formatShare(idleSeconds, busySeconds + idleSeconds)} of the time idle</span>
      )}
      {stoppedCost > 0 && <span className="soft">plus {formatMoney(stoppedCost)} a month for stopped machines</span>}
      <Link href="/pools" className="small">
        By pool
      </Link>
    </p>
  );
}
