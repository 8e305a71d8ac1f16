// Who goes back from a job finds the list where it was left: the rows that were read and the place among them.
import type { Held } from "./list-state.ts";
import type { Row } from "./slim.ts";

let kept: { held: Held<Row>; y: number } | undefined;
let isBack = false;

addEventListener("popstate", () => {
  isBack = true;
});
// The router says so when somebody follows a link.
addEventListener("pushState", () => {
  isBack = false;
});

export function keepList(held: Held<Row>, y: number): void {
  kept = { held, y };
}

/** The list that was left, for those who come back to the same question. */
export function keptList(of: string): { held: Held<Row>; y: number } | undefined {
  return isBack && kept?.held.of === of ? kept : undefined;
}
