// Where the keyboard goes on after a page was left for another: at the heading of the new one, which may come later than the page, when it was loaded.
import { useEffect, useRef } from "react";

let isComing = false;

export function arrive(): void {
  isComing = true;
}

/** For the heading of a page. Whoever has gone on to something else meanwhile is left there. */
export function useArrivedHere() {
  const heading = useRef<HTMLHeadingElement>(null);
  useEffect(() => {
    if (!isComing) return;
    isComing = false;
    const { activeElement } = document;
    const isElsewhere = activeElement !== document.body && activeElement?.closest(".rail, body > :not(#root)") === null;
    if (!isElsewhere) heading.current?.focus({ preventScroll: true });
  }, []);
  return heading;
}
