// What the machines of a pool cost: an hour of one, the stopped ones, this month, and how much of its budget that is.
import type { nouns } from "../../api/nouns.ts";
import { Moment } from "../../parts/moment.tsx";
import { cents, money, shareOf } from "../../parts/money.ts";
import { inert, several } from "../../parts/words.ts";
import "../../look/cost.css";

const MONTH_SECONDS = 30 * 86_400;

interface Known {
  of: NonNullable<nouns.Pool["machines"]>;
  /** Undefined while it is not known. */
  month: nouns.CostReport["rows"][number] | "none" | undefined;
  budget: nouns.Budget | undefined;
}

export function PoolCost({ of: { price, idlePrice, warm, prices }, month, budget }: Known) {
  if (price === null) {
    return <p className="pool-cost soft small">No price is known for its machines, so their cost is not counted.</p>;
  }
  // What costs nothing has cost nothing, unless the machines of this pool were others before.
  const free = price === 0 && !idlePrice;
  const spent = month !== undefined && month !== "none" && month.amount > 0;
  if (free && !spent && !budget) return null;
  return (
    <div className="pool-cost">
      <dl className="cost-facts">
        <div>
          <dt>An hour of a machine</dt>
          <dd className="number">{money(price * 3600)}</dd>
        </div>
        {warm > 0 && idlePrice !== null && (
          <div>
            <dt>{several(warm, "stopped machine")}, a month</dt>
            <dd className="number">{money(idlePrice * warm * MONTH_SECONDS)}</dd>
          </div>
        )}
        {(!free || spent) && (
          <div>
            <dt>This month</dt>
            <dd className="number">
              {month === undefined ? "…" : money(month === "none" ? 0 : month.amount)}
              {month !== undefined && month !== "none" && (
                <span className="cost-more">
                  {several(month.jobs, "job")}, {shareOf(month.idleSeconds, month.busySeconds + month.idleSeconds)} of
                  the time idle
                </span>
              )}
            </dd>
          </div>
        )}
        {prices !== null && (
          <div>
            <dt>Prices</dt>
            <dd className="foreign">{inert(prices)}</dd>
          </div>
        )}
      </dl>
      {budget && <BudgetBar budget={budget} />}
    </div>
  );
}

function BudgetBar({ budget: { amount, spent, period, held, resetsAt } }: { budget: nouns.Budget }) {
  const share = amount > 0 ? Math.min(1, spent / amount) : 1;
  const words = `${cents(spent)} of ${cents(amount)} this ${period}`;
  return (
    <div className="budget" data-held={held || undefined}>
      {/* The words beside it say the same. */}
      <div className="budget-bar" aria-hidden="true">
        <span style={{ width: `${share * 100}%` }} />
      </div>
      <span className="small">
        Budget: {words}
        {held && (
          <>
            , used up; goes on <Moment at={resetsAt} />
          </>
        )}
      </span>
    </div>
  );
}

/** Of this pool among all. */
export function monthOf(report: nouns.CostReport | undefined, pool: string): Known["month"] {
  return report && (report.rows.find(({ name }) => name === pool) ?? "none");
}

/** Budgets that belong to no pool, for the end of the page. */
export function TenantBudgets({ budgets }: { budgets: readonly nouns.Budget[] }) {
  return (
    <ul className="tenant-budgets">
      {budgets.map((budget) => (
        <li key={budget.name}>
          <span className="foreign">{inert(budget.name)}</span>
          <BudgetBar budget={budget} />
        </li>
      ))}
    </ul>
  );
}
