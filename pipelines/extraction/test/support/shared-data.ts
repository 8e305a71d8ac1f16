// Data of other people that is not ours to keep in the repository: it stands beside it, in ../shared, on the machines that have it.
import fs from "node:fs";
import path from "node:path";

const SHARED = path.resolve(import.meta.dirname, "../../../../../shared");

/** The path of a file or folder of it, or undefined where it is absent: the test then says so and makes do with our own samples. */
export function shared(...parts: string[]): string | undefined {
  const place = path.join(SHARED, ...parts);
  return fs.existsSync(place) ? place : undefined;
}
