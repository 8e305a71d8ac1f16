// Rows of reads as values of the API. A type is declared once, in the camel case of its fields; its columns have the
// same names in snake case.
import type { Queries } from "./database.ts";

type SnakeCase<Name> = Name extends `${infer First}${infer Rest}`
  ? `${First extends Lowercase<First> ? First : `_${Lowercase<First>}`}${SnakeCase<Rest>}`
  : Name;

/** The row of a value: a column per field. */
export type RowOf<Value> = { [Field in keyof Value as SnakeCase<Field>]: Value[Field] };

/** Only the columns are renamed: the fields of JSON values keep their names. */
export function fromRow<Value>(row: RowOf<Value>): Value {
  return Object.fromEntries(Object.entries(row).map(([column, value]) => [toCamelCase(column), value])) as Value;
}

/** Runs a query that selects a column per field of a value. */
export async function readValues<Value>(queries: Queries, text: string, values?: unknown[]): Promise<Value[]> {
  const rows = await queries.read<RowOf<Value>>(text, values);
  return rows.map((row) => fromRow<Value>(row));
}

/** pg parses infinity as a number. */
export function finiteTime(at: Date | number | null): Date | null {
  return at instanceof Date ? at : null;
}

function toCamelCase(column: string): string {
  return column.replace(/_(\w)/g, (_, letter: string) => letter.toUpperCase());
}
