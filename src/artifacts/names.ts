// Which names an artifact may have, and where such a name stands beneath a directory. A name comes from user code and ends in paths, rows,
// headers and other people's downloads, so it is checked by an allow-list before anything else looks at it. Both halves of the worker call
// this: the runner to help its user, the keeper because it does not trust the runner.
import fs from "node:fs/promises";
import path from "node:path";
import { InvalidInput, StillwakeError } from "../errors.ts";

const MAX_BYTES = 255;
/** Letters, marks, numbers, punctuation, symbols and the plain space: no control, no invisible and no direction-changing character. */
const allowed = /[^\p{L}\p{M}\p{N}\p{P}\p{S} ]/u;
const reservedCharacter = /[<>:"|?*\\]/;
const reservedName = /^(con|prn|aux|nul|conin\$|conout\$|(com|lpt)[0-9¹²³])(\.|$)/i;

/** Returns the name in Unicode's composed form (NFC), or says what is wrong with it. */
export function checkArtifactName(given: unknown, field = "name"): string {
  if (typeof given !== "string")
    refuse(String(given), field, "is not a text", "Name it like a file, such as report.json");
  const name = given.normalize("NFC");
  const bytes = Buffer.byteLength(name);
  if (bytes === 0) refuse(name, field, "is empty", "Name it like a file, such as report.json");
  if (bytes > MAX_BYTES) {
    refuse(name, field, `has ${bytes} bytes and the limit is ${MAX_BYTES}`, "Choose a shorter name");
  }
  if (name.startsWith("/"))
    refuse(name, field, "begins with a slash", "Name it relative to the job, such as reports/a.json");
  const foreign = allowed.exec(name)?.[0] ?? reservedCharacter.exec(name)?.[0];
  if (foreign !== undefined) {
    const point = foreign.codePointAt(0)!.toString(16).toUpperCase().padStart(4, "0");
    refuse(
      name,
      field,
      `contains the character U+${point}`,
      "Use letters, digits, spaces, dots, dashes and underscores",
    );
  }
  for (const part of name.split("/")) {
    if (part === "") refuse(name, field, "has an empty part", "Separate the parts with one slash, and end with a file");
    if (part === "." || part === "..") refuse(name, field, `has the part ${part}`, "Name it without . and ..");
    if (/[. ]$/.test(part))
      refuse(name, field, "has a part that ends in a dot or a space", "Remove the last character");
    if (reservedName.test(part))
      refuse(name, field, `has the part ${part}, which Windows reserves`, "Choose another name");
  }
  return name;
}

/**
 * The path of a name beneath a directory. Everything on the way that exists already is resolved, so that no link leads elsewhere. Answers
 * for this moment only: whoever opens the path does so without following a link at its end.
 */
export async function resolveInside(root: string, name: string): Promise<string> {
  const top = await fs.realpath(root);
  let place = top;
  for (const part of checkArtifactName(name).split("/")) {
    place = path.join(place, part);
    const there = await fs.lstat(place).catch(absent);
    // A link to nothing is refused as well: it would be followed by whoever creates the file.
    if (there && (await fs.realpath(place).catch(absent)) !== place) {
      throw new StillwakeError("OUTSIDE_SCRATCH", `${JSON.stringify(name)} leads through a link`, {
        field: "name",
        remedy: "Write artifacts as files of their own, without links",
      });
    }
  }
  return place;
}

/** Whether a resolved path is the directory itself or beneath it. Both are given without links, as realpath returns them. */
export function isInside(top: string, place: string): boolean {
  return place === top || place.startsWith(top.endsWith(path.sep) ? top : top + path.sep);
}

function absent(error: NodeJS.ErrnoException): undefined {
  if (error.code !== "ENOENT" && error.code !== "ENOTDIR") throw error;
}

function refuse(name: string, field: string, problem: string, remedy: string): never {
  throw new InvalidInput(`The artifact name ${JSON.stringify(name.slice(0, 300))} ${problem}`, { field, remedy });
}
