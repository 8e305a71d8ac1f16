// Money, sizes and percentiles as people say them.

export function size(bytes: number): string {
  const units = ["B", "kB", "MB", "GB"];
  let value = bytes;
  let unit = 0;
  for (; value >= 1000 && unit < units.length - 1; unit++) value /= 1000;
  return `${unit === 0 ? value : value.toFixed(value < 10 ? 1 : 0)} ${units[unit]}`;
}

/** Cents; for what is less than ten of them as many digits as tell something. */
export function money(amount: number): string {
  if (amount === 0 || amount >= 0.1) return `$${amount.toFixed(2)}`;
  return amount < 0.000001 ? "under $0.000001" : `$${amount.toFixed(6).replace(/(\.\d\d\d*?)0+$/, "$1")}`;
}

/** "99th percentile". */
export function percentile(part: number): string {
  const value = Math.floor(part * 100);
  const tens = value % 100;
  const end = tens > 10 && tens < 14 ? "th" : (["th", "st", "nd", "rd"][value % 10] ?? "th");
  return `${value}${end} percentile`;
}
