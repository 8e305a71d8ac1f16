// The tide gauge of demo-report: a program that the job starts as a child process. It prints a summary per day and
// writes all readings to readings.csv in its working directory.
//
//   node gauge.js <harbour> <readings> <milliseconds>
import fs from "node:fs/promises";
import { setTimeout as delay } from "node:timers/promises";
import { formatMetres, measured } from "./tides.ts";

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
  const [low, high] = [formatMetres(Math.min(...levels)), formatMetres(Math.max(...levels))];
  console.log(
    `Day ${day + 1}: ${levels.length === 1 ? "1 reading" : `${levels.length} readings`}, low water ${low}, high water ${high}`,
  );
}
await fs.writeFile("readings.csv", `${rows.join("\n")}\n`);
