// The licence check of `npm run check`: every package in the lock files has a licence that allows use in an MIT project.
import fs from "node:fs";
import { fileURLToPath } from "node:url";
import { inRoot } from "./ensure.mjs";

const PERMISSIVE = new Set([
  ...["0BSD", "Apache-2.0", "BlueOak-1.0.0", "BSD-2-Clause", "BSD-3-Clause", "CC0-1.0", "ISC", "MIT", "Unlicense"],
  // Texts and data that are shipped unchanged with attribution, and one equivalent of a public domain dedication.
  ...["Artistic-2.0", "CC-BY-3.0", "Python-2.0", "WTFPL"],
]);
/** Copyleft per file: fine for a tool that is not distributed with the package. */
const DEVELOPMENT_ONLY = new Set(["MPL-2.0"]);
/** Copyleft of a program that is started as a separate process: fine for an optional package of an example system. */
const OPTIONAL_PROGRAMS = /^node_modules\/@ff(mpeg|probe)-installer\/[^/]+$/;
/** Packages whose manifest names no licence, by the licence in their LICENSE file. */
const UNDECLARED = new Map([
  ["node_modules/busboy", "MIT"],
  ["node_modules/streamsearch", "MIT"],
]);

/** The packages of the project, and those that are installed on demand. */
const LOCK_FILES = ["package-lock.json", "pipelines/clip/speech/package-lock.json"];

/** Returns one line for each package whose licence is missing or not allowed. */
export function forbiddenLicences(packages) {
  return Object.entries(packages).flatMap(([path, entry]) => {
    if (!path.includes("node_modules/") || entry.link) return [];
    if (entry.optional && OPTIONAL_PROGRAMS.test(path)) return [];
    const allowed = (licence) => PERMISSIVE.has(licence) || (entry.dev && DEVELOPMENT_ONLY.has(licence));
    const license = entry.license ?? UNDECLARED.get(path) ?? "";
    // "(A OR B)" leaves the choice; "(A AND B)" requires both.
    const names = license.replaceAll(/[()]/g, "").split(/ (?:OR|AND) /);
    const passes = / AND /.test(license) ? names.every(allowed) : names.some(allowed);
    return passes ? [] : [`${path}: ${license || "no licence"}`];
  });
}

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  const locks = LOCK_FILES.map((name) => JSON.parse(fs.readFileSync(inRoot(name), "utf8")));
  const forbidden = locks.flatMap(({ packages }) => forbiddenLicences(packages));
  if (forbidden.length > 0) console.error(`Licences that need a decision:\n  ${forbidden.join("\n  ")}`);
  process.exit(forbidden.length > 0 ? 1 : 0);
}
