// Generates job ids. The client generates them, so that repeating a call whose response was lost does not create a second job. Same layout
// as stillwake.new_id(): UUIDv7 with a 26-bit counter after the milliseconds, which keeps the ids of one process in order.
import { randomFillSync } from "node:crypto";
import { InvalidInput } from "./errors.ts";

const TAIL = 12;
const random = Buffer.alloc(6 * 1024);
let tails = "";
let used = 0;
let counter = -1;
let lastMs = 0;
// The formatted milliseconds and upper half of the counter, cached: thousands of consecutive ids share them.
let front = "";
let frontMs = 0;
let frontHigh = -1;

export function newId(): string {
  if (used === tails.length) {
    tails = randomFillSync(random).toString("hex");
    used = 0;
    // A random start keeps the counters of two processes apart.
    if (counter < 0) counter = random.readUInt32BE(0) & 0x1ffffff;
  }
  const now = Date.now();
  // The wall clock can step back; the ids of one process must not.
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
    remedy: "Pass the UUID that enqueue returned",
  });
}
