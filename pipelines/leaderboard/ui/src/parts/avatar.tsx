// The initials of a contributor in a circle. The colour is derived from the name, and no image is loaded.
import type { CSSProperties } from "react";
import type { Contributor } from "../types.ts";

export function Avatar({ contributor: { login, name, initials } }: { contributor: Contributor }) {
  const letters = initials
    .match(/[\p{L}\p{N}]\p{M}*/gu)
    ?.slice(0, 2)
    .join("");
  return (
    <span className="avatar" aria-hidden="true" style={{ "--hue": hueOf(login ?? name ?? "") } as CSSProperties}>
      {letters || "?"}
    </span>
  );
}

/** One of 24 hues. Similar names get different hues. */
function hueOf(text: string): number {
  let hash = 7;
  for (const character of text) hash = (hash * 31 + character.codePointAt(0)!) >>> 0;
  return ((Math.imul(hash, 0x9e3779b1) >>> 16) % 24) * 15;
}
