// Reads provider credentials given as a file path or as the content itself. Either may come from the environment, and the content is
// secret: an error message repeats the value only if it must be a path. Used by Cloud Run and Kubernetes.
import fs from "node:fs";

const MAX_PATH_LENGTH = 200;

/** For messages: "in <path> ", or "" for anything that may be content. */
export function describePath(value: string): string {
  return isPath(value) ? `in ${value} ` : "";
}

/** Parses JSON given as text or file path. Errors never contain the content, unlike parser errors. */
export function readJsonCredentials(value: string, reject: (problem: string) => never): unknown {
  const text = value.trimStart().startsWith("{") ? value : readCredentialsFile(value, reject);
  try {
    return JSON.parse(text);
  } catch {
    return reject("is not JSON");
  }
}

export function readCredentialsFile(path: string, reject: (problem: string) => never): string {
  try {
    return fs.readFileSync(path, "utf8");
  } catch (error) {
    return reject(`cannot be read as a file: ${(error as NodeJS.ErrnoException).code ?? "not a path"}`);
  }
}

/** Short, on one line, and with a folder or a file extension. */
function isPath(value: string): boolean {
  return (
    value.length <= MAX_PATH_LENGTH &&
    /^[\w./\\:@ ~-]+$/.test(value) &&
    /^[.~]?\.?[/\\]|^[a-z]:\\|\.\w{1,10}$/i.test(value)
  );
}
