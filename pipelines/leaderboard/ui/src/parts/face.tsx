// Somebody as a round mark with initials. Its colour is made of the name, so that it is the same everywhere; nothing is loaded for it.
import type { CSSProperties } from "react";
import type { Contributor } from "../nouns.ts";

export function Face({ of: { login, name, initials } }: { of: Contributor }) {
  const letters = initials
    .match(/[\p{L}\p{N}]\p{M}*/gu)
    ?.slice(0, 2)
    .join("");
  return (
    <span className="face" aria-hidden="true" style={{ "--hue": hueOf(login ?? name ?? "") } as CSSProperties}>
      {letters || "?"}
    </span>
  );
}

/** One of 24 places on the wheel of colours; names that are nearly the same lie apart. */
function hueOf(text: string): number {
  let hash = 7;
  for (const sign of text) hash = (hash * 31 + sign.codePointAt(0)!) >>> 0;
  return ((Math.imul(hash, 0x9e3779b1) >>> 16) % 24) * 15;
}
