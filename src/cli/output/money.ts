// Dollars as people read them.

/** Cents; for what is less than ten of them as many digits as tell something. */
export function money(amount: number): string {
  if (amount === 0 || amount >= 0.1) return `$${amount.toFixed(2)}`;
  return amount < 0.000001 ? "<$0.000001" : `$${amount.toFixed(6).replace(/(\.\d\d\d*?)0+$/, "$1")}`;
}
