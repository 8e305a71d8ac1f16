// What stands in the tab. The frame names the page; a page that knows more says it after that.
import { useEffect } from "react";

export function titleOf(text: string | undefined): string {
  return text ? `${text} · Stillwake` : "Stillwake";
}

export function useTitle(text: string): void {
  useEffect(() => {
    document.title = titleOf(text);
  }, [text]);
}
