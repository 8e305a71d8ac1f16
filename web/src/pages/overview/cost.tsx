// What machines have cost this month, in a line, for installations that pay for some.
import { Link } from "wouter";
import type { nouns } from "../../api/nouns.ts";
import { money, shareOf } from "../../parts/money.ts";
import { several } from "../../parts/words.ts";
import "../../look/cost.css";

export function MonthCost({ report }: { report: nouns.CostReport | undefined }) {
  if (!report || (report.total.amount === 0 && report.idlePools.length === 0)) return null;
  const { amount, jobs, machines, busySeconds, idleSeconds } = report.total;
  const stopped = report.idlePools.reduce((sum, { perMonth }) => sum + perMonth, 0);
  return (
    <p className="month-cost">
      <span>
        <strong className="number">{money(amount)}</strong> this month for {several(machines, "machine")} and{" "}
        {several(jobs, "job")}
      </span>
      {busySeconds + idleSeconds > 0 && (
        <span className="soft">{shareOf(idleSeconds, busySeconds + idleSeconds)} of the time idle</span>
      )}
      {stopped > 0 && <span className="soft">{money(stopped)} a month for stopped machines besides</span>}
      <Link href="/pools" className="small">
        By pool
      </Link>
    </p>
  );
}
