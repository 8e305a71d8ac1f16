// The cost of a pool: per machine hour, stopped machines, this month, and the budget.

import { escapeText, formatMoney, formatShare, plural } from "@stillwake/ui/format.ts";
import { RelativeTime } from "@stillwake/ui/parts/time.tsx";
import type { api } from "../../api/resources.ts";
import { formatCents } from "../../parts/cost.ts";
import "../../css/cost.css";

const MONTH_SECONDS = 30 * 86_400;

interface PoolCostProps {
  machines: NonNullable<api.Pool["machines"]>;
  /** Undefined while it loads. */
  month: api.CostReport["rows"][number] | "none" | undefined;
  budget: api.Budget | undefined;
}

export function PoolCost({ machines: { price, idlePrice, warm, prices }, month, budget }: PoolCostProps) {
  if (price === null) {
    return <p className="pool-cost soft small">Cost unknown: its machines have no price.</p>;
  }
  const isFree = price === 0 && !idlePrice;
  // A free pool may have had machines with a price earlier this month.
  const hasSpent = month !== undefined && month !== "none" && month.amount > 0;
  if (isFree && !hasSpent && !budget) return null;
  return (
    <div className="pool-cost">
      <dl className="cost-facts">
        <div>
          <dt>Machine hour</dt>
          <dd className="number">{formatMoney(price * 3600)}</dd>
        </div>
        {warm > 0 && idlePrice !== null && (
          <div>
            <dt>{plural(warm, "stopped machine")}, per month</dt>
            <dd className="number">{formatMoney(idlePrice * warm * MONTH_SECONDS)}</dd>
          </div>
        )}
        {(!isFree || hasSpent) && (
          <div>
            <dt>This month</dt>
            <dd className="number">
              {month === undefined ? "…" : formatMoney(month === "none" ? 0 : month.amount)}
              {month !== undefined && month !== "none" && (
                <span className="cost-more">
                  {plural(month.jobs, "job")}, {formatShare(month.idleSeconds, month.busySeconds + month.idleSeconds)}{" "}
                  of the time idle
                </span>
              )}
            </dd>
          </div>
        )}
        {prices !== null && (
          <div>
            <dt>Prices</dt>
            <dd className="untrusted">{escapeText(prices)}</dd>
          </div>
        )}
      </dl>
      {budget && <BudgetBar budget={budget} />}
    </div>
  );
}

function BudgetBar({ budget: { amount, spent, period, held, resetsAt } }: { budget: api.Budget }) {
  const share = amount > 0 ? Math.min(1, spent / amount) : 1;
  return (
    <div className="budget" data-held={held || undefined}>
      <div className="budget-bar" aria-hidden="true">
        <span style={{ width: `${share * 100}%` }} />
      </div>
      <span className="small">
        Budget: {formatCents(spent)} of {formatCents(amount)} {period === "day" ? "today" : `this ${period}`}
        {held && (
          <>
            , used up; resets <RelativeTime at={resetsAt} />
          </>
        )}
      </span>
    </div>
  );
}

export function findMonth(report: api.CostReport | undefined, pool: string): PoolCostProps["month"] {
  return report && (report.rows.find(({ name }) => name === pool) ?? "none");
}

export function TenantBudgets({ budgets }: { budgets: readonly api.Budget[] }) {
  return (
    <ul className="tenant-budgets">
      {budgets.map((budget) => (
        <li key={budget.name}>
          <span className="untrusted">{escapeText(budget.name)}</span>
          <BudgetBar budget={budget} />
        </li>
      ))}
    </ul>
  );
}
