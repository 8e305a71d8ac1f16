// Job ids are made by the caller, so that a call whose answer was lost can be repeated without making a second job. The layout is that of
// stillwake.new_id(): UUIDv7 with 26 bits of counter behind the milliseconds, which keeps the ids of one process in order.
import { randomFillSync } from "node:crypto";
import { InvalidInput } from "./errors.ts";

const TAIL = 12;
const random = Buffer.alloc(6 * 1024);
let tails = "";
let used = 0;
let counter = -1;
let lastMs = 0;
// The milliseconds and the upper half of the counter as text: thousands of ids in a row have them in common.
let front = "";
let frontMs = 0;
let frontHigh = -1;

export function newId(): string {
  if (used === tails.length) {
    tails = randomFillSync(random).toString("hex");
    used = 0;
    // A fresh start keeps the counters of two processes apart.
    if (counter < 0) counter = random.readUInt32BE(0) & 0x1ffffff;
  }
  const now = Date.now();
  // The wall clock may step back; ids of one process never do.
  lastMs = now > lastMs ? now : lastMs;
  counter = (counter + 1) & 0x3ffffff;
  if (counter === 0) lastMs += 1;
  const high = counter >> 14;
  if (lastMs !== frontMs || high !== frontHigh) {
    const ms = lastMs.toString(16).padStart(12, "0");
    front = `${ms.slice(0, 8)}-${ms.slice(8)}-${(0x7000 | high).toString(16)}`;
    frontMs = lastMs;
    frontHigh = high;
  }
  const low = (0x8000 | (counter & 0x3fff)).toString(16);
  const tail = tails.slice(used, used + TAIL);
  used += TAIL;
  return `${front}-${low}-${tail}`;
}

export function checkId(id: unknown, field = "id"): string {
  if (typeof id === "string" && /^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$/i.test(id)) return id;
  throw new InvalidInput(`${JSON.stringify(id)} is not a job id`, {
    field,
    remedy: "A job id is a UUID, as enqueue returned it",
  });
}
