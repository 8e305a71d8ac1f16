// Texts of strangers, made fit to be shown: short, and with nothing in them that a reader does not see. Used by the reports that people read.
import { storable } from "../analysis/collect.ts";
import { webAddress } from "../untrusted.ts";

/** Control characters, marks that turn the direction of writing, and characters without width. */
const UNSEEN = /[\p{Cc}\u061c\u180e\u200b-\u200f\u202a-\u202e\u2060-\u2069\ufeff]/gu;

/** They are written out, such as <U+202E>: a text must not look like another one. */
export function visible(text: unknown, most: number): string {
  return storable(text, most)
    .replace(/[\t\n\r]+/g, " ")
    .replace(UNSEEN, (one) => `<U+${one.codePointAt(0)!.toString(16).toUpperCase().padStart(4, "0")}>`)
    .trim();
}

/** Of a path within the repository. Undefined for one that leads out of it, or that no tree has. */
export function uriOf(path: string): string | undefined {
  const parts = path.replaceAll("\\", "/").split("/");
  if (path === "" || path.length > 4_000 || parts.some((part) => part === "" || part === "." || part === ".."))
    return undefined;
  return storable(path, 4_000).split("/").map(encodeURIComponent).join("/");
}

/** For a link that people press: nothing but the web, in the form that browsers give it. */
export function linkTo(url: string | null): string | undefined {
  const address = webAddress(url);
  return address === undefined ? undefined : new URL(address).href;
}
