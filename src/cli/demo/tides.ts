// Tides of a made-up harbour, by hour: the prediction of the tide table and the reading of the gauge. Deterministic per
// harbour, so that a resumed job produces the same report.

export interface Reading {
  /** From 0. */
  hour: number;
  metres: number;
}

const MEAN = 2.4;
/** Amplitude in metres and period in hours: lunar and solar half-day tides, and the daily tide. */
const WAVES = [
  [1.25, 12.42],
  [0.42, 12],
  [0.16, 23.93],
] as const;
/** The float of the gauge gets stuck now and then. */
const STUCK_EVERY = 71;
const STUCK_BY = 0.34;
/** Deviations below this are caused by waves and wind. */
const TOLERANCE = 0.2;

export function predicted(hour: number): number {
  return WAVES.reduce((level, [height, period]) => level + height * Math.cos((2 * Math.PI * hour) / period), MEAN);
}

export function measured(harbour: string, hour: number): number {
  const chance = hash(`${harbour} ${hour}`);
  const ripple = ((chance % 1000) / 1000 - 0.5) * 0.1;
  const stuck = chance % STUCK_EVERY === 0 ? STUCK_BY : 0;
  return Math.round((predicted(hour) + ripple + stuck) * 100) / 100;
}

/** The deviation from the tide table in centimetres; undefined within the tolerance. */
export function outlierCm({ hour, metres }: Reading): number | undefined {
  const off = metres - predicted(hour);
  return Math.abs(off) > TOLERANCE ? Math.round(off * 100) : undefined;
}

/** "day 3, 14:00". */
export function formatHour(hour: number): string {
  return `day ${Math.floor(hour / 24) + 1}, ${String(hour % 24).padStart(2, "0")}:00`;
}

export const formatMetres = (metres: number) => `${metres.toFixed(2)} m`;

function hash(text: string): number {
  let value = 0x811c9dc5;
  for (const character of text) value = Math.imul(value ^ character.codePointAt(0)!, 0x01000193) >>> 0;
  return (value ^ (value >>> 15)) >>> 0;
}
