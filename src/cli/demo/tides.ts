// The water of a harbour that does not exist, hour by hour: what the tide table says and what the gauge measures. Always the same for the same
// harbour, so that the report of a job that went on elsewhere is the report it would have been.

export interface Reading {
  /** Counted from 0. */
  hour: number;
  metres: number;
}

const MEAN = 2.4;
/** Height in metres and period in hours: the moon twice a day, the sun twice a day, both once a day. */
const WAVES = [
  [1.25, 12.42],
  [0.42, 12],
  [0.16, 23.93],
] as const;
/** The float of the gauge sticks now and then. */
const STUCK_EVERY = 71;
const STUCK_BY = 0.34;
/** Waves and wind do less than this. */
export const TOLERANCE = 0.2;

export function predicted(hour: number): number {
  return WAVES.reduce((level, [height, period]) => level + height * Math.cos((2 * Math.PI * hour) / period), MEAN);
}

export function measured(harbour: string, hour: number): number {
  const chance = hash(`${harbour} ${hour}`);
  const ripple = ((chance % 1000) / 1000 - 0.5) * 0.1;
  const stuck = chance % STUCK_EVERY === 0 ? STUCK_BY : 0;
  return Math.round((predicted(hour) + ripple + stuck) * 100) / 100;
}

/** How far a reading is from the tide table, in whole centimetres; undefined where waves and wind explain it. */
export function strayBy({ hour, metres }: Reading): number | undefined {
  const off = metres - predicted(hour);
  return Math.abs(off) > TOLERANCE ? Math.round(off * 100) : undefined;
}

/** "day 3, 14:00". */
export function moment(hour: number): string {
  return `day ${Math.floor(hour / 24) + 1}, ${String(hour % 24).padStart(2, "0")}:00`;
}

export const inMetres = (metres: number) => `${metres.toFixed(2)} m`;

function hash(text: string): number {
  let value = 0x811c9dc5;
  for (const character of text) value = Math.imul(value ^ character.codePointAt(0)!, 0x01000193) >>> 0;
  return (value ^ (value >>> 15)) >>> 0;
}
