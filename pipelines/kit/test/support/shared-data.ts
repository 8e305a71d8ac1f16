// Third-party data that is not part of the repository. It is in ../shared beside it, on machines that have it.
import fs from "node:fs";
import path from "node:path";

const SHARED = path.resolve(import.meta.dirname, "../../../../../shared");

/** Path of a file or folder, or undefined if it is missing: the test then uses the project's own samples and says so. */
export function shared(...parts: string[]): string | undefined {
  const file = path.join(SHARED, ...parts);
  return fs.existsSync(file) ? file : undefined;
}
