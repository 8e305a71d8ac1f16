// For tests that run code as another user, which needs root and a checkout that the other user can read.
import fs from "node:fs";
import path from "node:path";
import { ROOT } from "./build.ts";

/** Why code cannot run as another user; undefined if it can. */
export const otherUserUnavailable: string | undefined =
  process.getuid?.() !== 0
    ? "only root can run code as another user"
    : closedParent(ROOT) && `other users cannot enter ${closedParent(ROOT)}: clone to another directory to run this`;

/** A suffix for the title of a skipped test. */
export function skipReason(why: string | undefined): string {
  return why ? ` (skipped: ${why})` : "";
}

function closedParent(directory: string): string | undefined {
  const parent = path.dirname(directory);
  return (fs.statSync(directory).mode & 0o1) === 0
    ? directory
    : parent === directory
      ? undefined
      : closedParent(parent);
}
