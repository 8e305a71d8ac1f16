// Lists that are read page by page. A page begins behind the place where the last one ended, by the values it is sorted by: what comes and goes meanwhile moves
// nothing, and the hundredth page costs what the first does.
import type pg from "pg";
import { Refusal } from "./problems.ts";

export interface Page {
  limit: number;
  cursor?: string | undefined;
}

export interface Paged<Row> {
  rows: Row[];
  /** Where to go on; null at the end. */
  cursor: string | null;
  /** Of all pages together. */
  total: number;
}

export interface Question {
  page: Page;
  select: string;
  from: string;
  /** With ? for each of the values. */
  where: string[];
  values: unknown[];
  /** Not null, and together unique. */
  order: (readonly [expression: string, way: "asc" | "desc", type: string])[];
}

export async function pageOf<Row extends pg.QueryResultRow>(
  queries: pg.Pool | pg.PoolClient,
  { page, select, from, where, values, order }: Question,
): Promise<Paged<Row>> {
  const given: unknown[] = [...values];
  const places = values.keys();
  const filter = where.map((one) => `(${one.replaceAll("?", () => `$${places.next().value! + 1}`)})`).join(" and ");
  const put = (value: unknown) => `$${given.push(value)}`;
  const behind = page.cursor === undefined ? "true" : behindOf(order, readCursor(page.cursor, order.length), put);
  const last = order.map(([expression], index) => `(${expression})::text as "_${index}"`).join(", ");
  const sorted = order.map(([expression, way]) => `${expression} ${way}`).join(", ");
  const text = `select ${select}, ${last} from ${from} where ${filter} and ${behind} order by ${sorted} limit ${put(page.limit + 1)}`;
  const found = await queries.query(text, given).catch((error: { code?: string }) => {
    // Of what is compared only the cursor comes from outside without having been looked at.
    if (page.cursor !== undefined && error.code?.startsWith("22")) throw noCursor();
    throw error;
  });
  const { rows: counted } = await queries.query(
    `select count(*)::integer as total from ${from} where ${filter}`,
    values,
  );
  const more = found.rows.length > page.limit;
  const rows = found.rows.slice(0, page.limit);
  const end = rows.at(-1);
  const cursor = more && end ? writeCursor(order.map((_, index) => end[`_${index}`])) : null;
  for (const row of rows) for (const index of order.keys()) delete row[`_${index}`];
  return { rows: rows as Row[], cursor, total: counted[0].total };
}

/** For a search: what has the text in it somewhere, whatever signs the text has. */
export function having(text: string): string {
  return `%${text.replaceAll(/[\\%_]/g, "\\$&")}%`;
}

/** Later in the first, or the same in it and later in the second, and so on. */
function behindOf(order: Question["order"], values: string[], put: (value: unknown) => string): string {
  const places = order.map(([expression, way, type], index) => {
    const value = `${put(values[index])}::text::${type}`;
    return { later: `${expression} ${way === "asc" ? ">" : "<"} ${value}`, same: `${expression} = ${value}` };
  });
  const ways = places.map(({ later }, index) =>
    [...places.slice(0, index).map(({ same }) => same), later].join(" and "),
  );
  return `(${ways.map((way) => `(${way})`).join(" or ")})`;
}

function writeCursor(values: unknown[]): string {
  return Buffer.from(JSON.stringify(values)).toString("base64url");
}

function readCursor(cursor: string, length: number): string[] {
  try {
    const values: unknown = JSON.parse(Buffer.from(cursor, "base64url").toString());
    const fits = Array.isArray(values) && values.length === length && values.every((one) => typeof one === "string");
    if (fits && !values.some((one) => one.includes("\0"))) return values;
  } catch {
    // It is none.
  }
  throw noCursor();
}

function noCursor(): Refusal {
  return new Refusal(400, "INVALID_INPUT", "cursor: is none of this list", {
    field: "cursor",
    remedy: "Send the one that the page before answered with, or none for the first page",
  });
}
