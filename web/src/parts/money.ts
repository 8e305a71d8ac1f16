// Dollars as people read them, and whether there are any to tell of.
import type { nouns } from "../api/nouns.ts";

/** Cents; for what is less than ten of them as many digits as tell something. */
export function money(amount: number): string {
  if (amount === 0 || amount >= 0.1) return `$${amount.toFixed(2)}`;
  return amount < 0.000001 ? "under $0.000001" : `$${amount.toFixed(6).replace(/(\.\d\d\d*?)0+$/, "$1")}`;
}

/** Beside a budget digits below a cent tell nothing, unless there are no cents. */
export function cents(amount: number): string {
  return amount >= 0.01 ? `$${amount.toFixed(2)}` : money(amount);
}

/** "44 %". */
export function shareOf(part: number, whole: number): string {
  if (whole <= 0) return "–";
  const share = (part / whole) * 100;
  return share > 0 && share < 1 ? "under 1 %" : `${Math.round(share)} %`;
}

/** Whether any pool has machines that cost something: of others nothing is asked. */
export function pays(pools: readonly nouns.Pool[] | undefined): boolean {
  return pools?.some(({ machines }) => (machines?.price ?? 0) > 0) ?? false;
}
