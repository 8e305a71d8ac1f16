// The page that the URL names: its title in the tab, and the keyboard focus after a navigation, which moves to the
// heading of the new page. That heading may render later than the navigation, when the code of the page has loaded.
import { useEffect, useLayoutEffect, useRef } from "react";
import { useLocation } from "wouter";

let navigated = false;

/** For the frame: scrolls to the top after a navigation and lets the next heading take the focus. */
export function usePageChange(onChange: () => void = () => {}): void {
  const [path] = useLocation();
  const before = useRef(path);
  // A layout effect, because it has to run before the effects of the new page.
  useLayoutEffect(() => {
    if (before.current === path) return;
    before.current = path;
    navigated = true;
    onChange();
    scrollTo(0, 0);
  }, [path]);
}

/** For the h1 of a page. The focus stays where it is if the user has moved it in the meantime. */
export function useHeadingFocus() {
  const heading = useRef<HTMLHeadingElement>(null);
  useEffect(() => {
    if (!navigated) return;
    navigated = false;
    const { activeElement } = document;
    const hasMoved =
      activeElement !== document.body && activeElement?.closest(".rail, .top-bar, body > :not(#root)") === null;
    if (!hasMoved) heading.current?.focus({ preventScroll: true });
  }, []);
  return heading;
}

export function usePageTitle(title: string): void {
  useEffect(() => {
    document.title = title;
  }, [title]);
}
