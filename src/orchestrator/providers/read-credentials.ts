// What people give providers to get in with: the path of a file, or what is in it. Either may come from the environment, and the text may be a secret: it is said
// back in an error only where it cannot be anything but a path.
import fs from "node:fs";

const MOST = 200;

/** For messages: where it was looked for, or nothing. */
export function placed(given: string): string {
  return isPath(given) ? `in ${given} ` : "";
}

/** What is in JSON that was given as text or as the path of a file. `refuse` gets no word of what is in it: parsers quote what they stumble over. */
export function givenJson(given: string, refuse: (what: string) => never): unknown {
  const text = isJson(given) ? given : givenFile(given, refuse);
  try {
    return JSON.parse(text);
  } catch {
    return refuse("is not JSON");
  }
}

/** What is in the file of this path. */
export function givenFile(path: string, refuse: (what: string) => never): string {
  try {
    return fs.readFileSync(path, "utf8");
  } catch (error) {
    return refuse(`cannot be read as a file: ${(error as NodeJS.ErrnoException).code ?? "it is no path"}`);
  }
}

function isJson(given: string): boolean {
  return given.trimStart().startsWith("{");
}

/** Short, of one line, and written as paths are: from some folder on, or with an ending. */
function isPath(given: string): boolean {
  return given.length <= MOST && /^[\w./\\:@ ~-]+$/.test(given) && /^[.~]?\.?[/\\]|^[a-z]:\\|\.\w{1,10}$/i.test(given);
}
