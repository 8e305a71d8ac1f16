// Validates artifact names and resolves them to paths. Names come from user code and end up in paths, rows, headers and downloads, so an
// allow-list checks them first. The runner calls it for early errors, the keeper because it does not trust the runner.
import fs from "node:fs/promises";
import path from "node:path";
import { InvalidInput, StillwakeError } from "../errors.ts";

const MAX_BYTES = 255;
/** Anything but letters, marks, numbers, punctuation, symbols and the space, such as invisible characters. */
const forbidden = /[^\p{L}\p{M}\p{N}\p{P}\p{S} ]/u;
const reservedCharacter = /[<>:"|?*\\]/;
const reservedName = /^(con|prn|aux|nul|conin\$|conout\$|(com|lpt)[0-9¹²³])(\.|$)/i;

/** Returns the name in Unicode normalization form NFC. */
export function checkArtifactName(rawName: unknown, field = "name"): string {
  if (typeof rawName !== "string")
    reject(String(rawName), field, "is not a string", "Name it like a file, such as report.json");
  const name = rawName.normalize("NFC");
  const bytes = Buffer.byteLength(name);
  if (bytes === 0) reject(name, field, "is empty", "Name it like a file, such as report.json");
  if (bytes > MAX_BYTES) {
    reject(name, field, `has ${bytes} bytes, the limit is ${MAX_BYTES}`, "Choose a shorter name");
  }
  if (name.startsWith("/"))
    reject(name, field, "starts with a slash", "Name it relative to the job, such as reports/a.json");
  const found = forbidden.exec(name)?.[0] ?? reservedCharacter.exec(name)?.[0];
  if (found !== undefined) {
    const point = found.codePointAt(0)!.toString(16).toUpperCase().padStart(4, "0");
    reject(
      name,
      field,
      `contains the character U+${point}`,
      "Use letters, digits, spaces, dots, dashes and underscores",
    );
  }
  for (const part of name.split("/")) {
    if (part === "")
      reject(name, field, "has an empty part", "Separate the parts with single slashes, and end with a file name");
    if (part === "." || part === "..") reject(name, field, `has the part ${part}`, "Remove . and ..");
    if (/[. ]$/.test(part))
      reject(name, field, "has a part that ends in a dot or a space", "Remove the last character");
    if (reservedName.test(part))
      reject(name, field, `has the part ${part}, which Windows reserves`, "Choose another name");
  }
  return name;
}

/**
 * The path of a name inside a directory. Rejects names that pass through a link. Valid for this moment only: the caller
 * must open the path without following a link at its end.
 */
export async function resolveInside(root: string, name: string): Promise<string> {
  const top = await fs.realpath(root);
  let resolved = top;
  for (const part of checkArtifactName(name).split("/")) {
    resolved = path.join(resolved, part);
    const exists = await fs.lstat(resolved).catch(ignoreMissing);
    // A dangling link is rejected too: creating the file would follow it.
    if (exists && (await fs.realpath(resolved).catch(ignoreMissing)) !== resolved) {
      throw new StillwakeError("OUTSIDE_SCRATCH", `The path of artifact ${JSON.stringify(name)} contains a link`, {
        field: "name",
        remedy: "Write artifacts as regular files, without links",
      });
    }
  }
  return resolved;
}

/** Whether a path is the directory itself or inside it. Both must be resolved by realpath. */
export function isInside(top: string, file: string): boolean {
  return file === top || file.startsWith(top.endsWith(path.sep) ? top : top + path.sep);
}

function ignoreMissing(error: NodeJS.ErrnoException): undefined {
  if (error.code !== "ENOENT" && error.code !== "ENOTDIR") throw error;
}

function reject(name: string, field: string, problem: string, remedy: string): never {
  throw new InvalidInput(`The artifact name ${JSON.stringify(name.slice(0, 300))} ${problem}`, { field, remedy });
}
