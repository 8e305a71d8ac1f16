// Records numbers that tests measure in results/figures.jsonl; `npm run figures` prints those of the last run.
import fs from "node:fs";
import path from "node:path";
import { inject } from "vitest";

const FILE = path.resolve(import.meta.dirname, "../../results/figures.jsonl");

export function recordFigure(name: string, value: number, unit = "", note = ""): void {
  fs.mkdirSync(path.dirname(FILE), { recursive: true });
  fs.appendFileSync(FILE, `${JSON.stringify({ run: inject("run"), name, value, unit, note })}\n`);
}
