// The tide gauge of demo-report: a program of its own, which a job starts as it would start any other. It says what it has read, day by day, and
// leaves all readings in readings.csv in its working directory.
//
//   node gauge.js <harbour> <readings> <milliseconds>
import fs from "node:fs/promises";
import { setTimeout as delay } from "node:timers/promises";
import { inMetres, measured } from "./tides.ts";

const [harbour = "", count = "24", ms = "0"] = process.argv.slice(2);
const readings = Number(count);
const days = Math.ceil(readings / 24);
const rows: string[] = [];

for (let day = 0; day < days; day++) {
  await delay(Number(ms) / days);
  const levels: number[] = [];
  for (let hour = day * 24; hour < Math.min(readings, day * 24 + 24); hour++) {
    levels.push(measured(harbour, hour));
    rows.push(`${hour},${levels.at(-1)}`);
  }
  const [low, high] = [inMetres(Math.min(...levels)), inMetres(Math.max(...levels))];
  console.log(
    `Day ${day + 1}: ${levels.length === 1 ? "1 reading" : `${levels.length} readings`}, low water ${low}, high water ${high}`,
  );
}
await fs.writeFile("readings.csv", `${rows.join("\n")}\n`);
