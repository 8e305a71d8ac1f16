// Tests that run code as another user: only root may, and only where that user can reach this checkout.
import fs from "node:fs";
import path from "node:path";
import { ROOT } from "./build.ts";

/** Why no other user can run what is here; undefined when one can. */
export const noOtherUser: string | undefined =
  process.getuid?.() !== 0
    ? "only root can run code as another user"
    : closedParent(ROOT) && `nobody but its owner may enter ${closedParent(ROOT)}: clone to another place to run this`;

/** For the title of what is skipped. */
export function skipped(why: string | undefined): string {
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
