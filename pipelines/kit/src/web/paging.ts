// Keyset pagination: a page starts after the sort values of the last row of the previous page. Inserted and deleted rows do
// not shift later pages, and the hundredth page costs as much as the first.
import type pg from "pg";
import { Refusal } from "./problems.ts";

export interface PageRequest {
  limit: number;
  cursor?: string | undefined;
}

export interface Paged<Row> {
  rows: Row[];
  /** Cursor of the next page; null on the last page. */
  cursor: string | null;
  /** Number of rows of all pages. */
  total: number;
}

export interface PageQuery {
  page: PageRequest;
  select: string;
  from: string;
  /** Conditions with ? as the placeholder of each value. */
  where: string[];
  values: unknown[];
  /** Expressions must not be null, and together unique. */
  order: (readonly [expression: string, direction: "asc" | "desc", type: string])[];
}

export async function queryPage<Row extends pg.QueryResultRow>(
  queries: pg.Pool | pg.PoolClient,
  { page, select, from, where, values, order }: PageQuery,
): Promise<Paged<Row>> {
  const parameters: unknown[] = [...values];
  const indexes = values.keys();
  const filter = where
    .map((condition) => `(${condition.replaceAll("?", () => `$${indexes.next().value! + 1}`)})`)
    .join(" and ");
  const parameter = (value: unknown) => `$${parameters.push(value)}`;
  const after =
    page.cursor === undefined ? "true" : afterCursor(order, readCursor(page.cursor, order.length), parameter);
  const sortValues = order.map(([expression], index) => `(${expression})::text as "_${index}"`).join(", ");
  const sorting = order.map(([expression, direction]) => `${expression} ${direction}`).join(", ");
  const text = `select ${select}, ${sortValues} from ${from} where ${filter} and ${after} order by ${sorting} limit ${parameter(page.limit + 1)}`;
  const found = await queries.query(text, parameters).catch((error: { code?: string }) => {
    // A data exception (class 22) can only come from the cursor: all other values were validated.
    if (page.cursor !== undefined && error.code?.startsWith("22")) throw invalidCursor();
    throw error;
  });
  const { rows: counted } = await queries.query(
    `select count(*)::integer as total from ${from} where ${filter}`,
    values,
  );
  const more = found.rows.length > page.limit;
  const rows = found.rows.slice(0, page.limit);
  const last = rows.at(-1);
  const cursor = more && last ? writeCursor(order.map((_, index) => last[`_${index}`])) : null;
  for (const row of rows) for (const index of order.keys()) delete row[`_${index}`];
  return { rows: rows as Row[], cursor, total: counted[0].total };
}

/** LIKE pattern for values that contain the text; special characters are escaped. */
export function containsPattern(text: string): string {
  return `%${text.replaceAll(/[\\%_]/g, "\\$&")}%`;
}

/** After in the first expression, or equal in it and after in the second, and so on. */
function afterCursor(order: PageQuery["order"], values: string[], parameter: (value: unknown) => string): string {
  const comparisons = order.map(([expression, direction, type], index) => {
    const value = `${parameter(values[index])}::text::${type}`;
    return { after: `${expression} ${direction === "asc" ? ">" : "<"} ${value}`, equal: `${expression} = ${value}` };
  });
  const alternatives = comparisons.map(({ after }, index) =>
    [...comparisons.slice(0, index).map(({ equal }) => equal), after].join(" and "),
  );
  return `(${alternatives.map((condition) => `(${condition})`).join(" or ")})`;
}

function writeCursor(values: unknown[]): string {
  return Buffer.from(JSON.stringify(values)).toString("base64url");
}

function readCursor(cursor: string, length: number): string[] {
  try {
    const values: unknown = JSON.parse(Buffer.from(cursor, "base64url").toString());
    const fits =
      Array.isArray(values) && values.length === length && values.every((value) => typeof value === "string");
    if (fits && !values.some((value) => value.includes("\0"))) return values;
  } catch {
    // Not a cursor.
  }
  throw invalidCursor();
}

function invalidCursor(): Refusal {
  return new Refusal(400, "INVALID_INPUT", "cursor: is not valid for this list", {
    field: "cursor",
    remedy: "Send the cursor of the previous page, or none for the first page",
  });
}
