import { formatMoney } from "@stillwake/ui/format.ts";
import type { api } from "../api/resources.ts";

/** For amounts beside a budget: fractions of a cent only if there are no cents. */
export function formatCents(amount: number): string {
  return amount >= 0.01 ? `$${amount.toFixed(2)}` : formatMoney(amount);
}

/** Whether a machine of any pool has a price. Without one, costs are not fetched. */
export function hasCosts(pools: readonly api.Pool[] | undefined): boolean {
  return pools?.some(({ machines }) => (machines?.price ?? 0) > 0) ?? false;
}
