// Which page is shown: the address below the document's base. Links of the page change it without loading anything.
import { type AnchorHTMLAttributes, useSyncExternalStore } from "react";

const base = new URL(document.baseURI).pathname;
const listeners = new Set<() => void>();
addEventListener("popstate", tell);

/** Such as "projects/42?tab=reports"; "" for the first page. */
export function usePlace(): string {
  return useSyncExternalStore(
    (listener) => {
      listeners.add(listener);
      return () => listeners.delete(listener);
    },
    () => location.pathname.slice(base.length) + location.search,
  );
}

export function go(place: string, { replace = false } = {}): void {
  history[replace ? "replaceState" : "pushState"](null, "", addressOf(place));
  tell();
  if (!replace) scrollTo(0, 0);
}

/** Relative to the document's base, so that the application may be mounted anywhere. */
export function addressOf(place: string): string {
  return new URL(place, document.baseURI).href;
}

/** The same page with another word in its address; null takes it out. */
export function placeWith(place: string, words: Record<string, string | null>): string {
  const [path = "", search = ""] = place.split("?", 2);
  const all = new URLSearchParams(search);
  for (const [name, value] of Object.entries(words)) value === null ? all.delete(name) : all.set(name, value);
  return all.size === 0 ? path : `${path}?${all}`;
}

export function Link({ to, ...rest }: { to: string } & AnchorHTMLAttributes<HTMLAnchorElement>) {
  return (
    <a
      {...rest}
      href={addressOf(to)}
      onClick={(event) => {
        if (event.metaKey || event.ctrlKey || event.shiftKey || event.altKey || event.button !== 0) return;
        event.preventDefault();
        go(to);
      }}
    />
  );
}

function tell(): void {
  for (const listener of listeners) listener();
}
