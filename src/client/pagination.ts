// Filters, page sizes and cursors of lists.
import type { JobFilter } from "../db/calls/jobs.ts";
import { InvalidInput } from "../errors.ts";
import { checkId } from "../ids.ts";
import { checkLabel } from "../payload.ts";
import { checkInteger, withoutUndefined } from "../validate.ts";

const states = ["queued", "running", "paused", "completed", "failed", "cancelled"];

const filters = ["pipeline", "pool", "state", "key", "tenant", "parent", "since", "until", "text"];

export function checkFilter(filter: JobFilter): JobFilter {
  const defined = withoutUndefined(filter) as JobFilter;
  for (const [field, value] of Object.entries(defined)) {
    if (!filters.includes(field)) {
      throw new InvalidInput(`Unknown filter "${field}"`, { field, remedy: `Filters: ${filters.join(", ")}` });
    }
    if (field === "state" && !states.includes(value)) {
      throw new InvalidInput(`${JSON.stringify(value)} is not a state`, {
        field,
        remedy: `States: ${states.join(", ")}`,
      });
    }
    if (field === "parent") checkId(value);
    else if (field === "since" || field === "until") checkDate(value, field);
    else checkLabel(value, field);
  }
  return defined;
}

function checkDate(value: unknown, field: string): void {
  if (value instanceof Date && Math.abs(value.getTime()) < 2 ** 47) return;
  throw new InvalidInput(`${field} is not a valid Date`, { field, remedy: "Pass a Date" });
}

export function checkLimit(limit: number, max: number): number {
  return checkInteger(limit, "limit", 1, max);
}

export function writeCursor(id: string): string {
  return Buffer.from(id.replaceAll("-", ""), "hex").toString("base64url");
}

export function readCursor(cursor: string): string {
  const hex =
    typeof cursor === "string" && cursor.length === 22 ? Buffer.from(cursor, "base64url").toString("hex") : "";
  if (hex.length !== 32) {
    throw new InvalidInput(`${JSON.stringify(cursor)} is not a cursor`, {
      field: "cursor",
      remedy: "Pass the cursor of the previous page unchanged, or none for the first page",
    });
  }
  return hex.replace(/^(.{8})(.{4})(.{4})(.{4})(.{12})$/, "$1-$2-$3-$4-$5");
}
