// Types of API responses that both example systems use.

/** A type as JSON represents it: dates are strings. */
export type JsonOf<T> = T extends Date ? string : T extends object ? { [Name in keyof T]: JsonOf<T[Name]> } : T;

/** A page of a list. */
export interface Page<Row> {
  rows: Row[];
  /** The cursor of the next page; null at the end. */
  cursor: string | null;
  /** The number of rows on all pages. */
  total: number;
}
