// A page that breaks, or whose files are gone because the server has a newer version, must not take the rest with it.
import { Component, type ReactNode } from "react";
import { Button } from "./parts/button.tsx";

export class Boundary extends Component<{ children: ReactNode }, { error: Error | undefined }> {
  override state: { error: Error | undefined } = { error: undefined };

  static getDerivedStateFromError(error: Error) {
    return { error };
  }

  override render(): ReactNode {
    if (!this.state.error) return this.props.children;
    return (
      <div className="callout" data-tone="bad" role="alert">
        <strong>This page could not be shown</strong>
        <span>
          The server may have a newer version, or the connection was lost while it was loaded. Jobs go on either way.
        </span>
        <div>
          <Button kind="main" onClick={() => location.reload()}>
            Reload
          </Button>
        </div>
      </div>
    );
  }
}

const RELOADED = "stillwake reloaded";
const LATELY_MS = 30_000;

/** Files of a page are gone when the server was upgraded: the new ones are fetched by loading the page again, once. */
export function reloadOnUpgrade(): void {
  addEventListener("vite:preloadError", (event) => {
    try {
      const last = Number(sessionStorage.getItem(RELOADED));
      if (!navigator.onLine || Date.now() - last < LATELY_MS) return;
      sessionStorage.setItem(RELOADED, String(Date.now()));
    } catch {
      return;
    }
    event.preventDefault();
    location.reload();
  });
}
