// Light, dark, or as the system has it. Kept in this browser.
import { useSyncExternalStore } from "react";

export type Theme = "system" | "light" | "dark";

const KEPT_AS = "stillwake theme";
const listeners = new Set<() => void>();

function kept(): Theme {
  try {
    const found = localStorage.getItem(KEPT_AS);
    return found === "light" || found === "dark" ? found : "system";
  } catch {
    return "system";
  }
}

export function applyTheme(theme: Theme = kept()): void {
  if (theme === "system") delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = theme;
}

export function useTheme(): [Theme, (theme: Theme) => void] {
  const theme = useSyncExternalStore((listener) => {
    listeners.add(listener);
    return () => listeners.delete(listener);
  }, kept);
  const set = (next: Theme) => {
    try {
      localStorage.setItem(KEPT_AS, next);
    } catch {
      // Without storage it holds until the page is left.
    }
    applyTheme(next);
    for (const listener of listeners) listener();
  };
  return [theme, set];
}
