// npm run figures: what the tests measured in their last run.
import fs from "node:fs";
import { inRoot } from "./ensure.mjs";

const lines = fs.existsSync(inRoot("results/figures.jsonl"))
  ? fs.readFileSync(inRoot("results/figures.jsonl"), "utf8").split("\n").filter(Boolean)
  : [];
const figures = lines.map((line) => JSON.parse(line));
const lastRun = figures.at(-1)?.run;
const rows = figures
  .filter((figure) => figure.run === lastRun)
  .map(({ name, value, unit, note }) => [name, `${Number(value.toPrecision(4))} ${unit}`.trim(), note]);

if (rows.length === 0) {
  console.log("Nothing is measured yet: run npm test first.");
} else {
  console.log(`Measured in the run of ${lastRun}\n`);
  const width = (column) => Math.max(...rows.map((row) => row[column].length));
  for (const [name, value, note] of rows) {
    console.log(`${name.padEnd(width(0))}  ${value.padStart(width(1))}  ${note}`.trimEnd());
  }
}
