// An error boundary: a page that fails to render, or whose files are gone after an upgrade of the server, must not take the frame with it.
import { Button } from "@stillwake/ui/parts/button.tsx";
import { Component, type ReactNode } from "react";

export class ErrorBoundary extends Component<{ children: ReactNode }, { error: Error | undefined }> {
  override state: { error: Error | undefined } = { error: undefined };

  static getDerivedStateFromError(error: Error) {
    return { error };
  }

  override render(): ReactNode {
    if (!this.state.error) return this.props.children;
    return (
      <div className="callout" data-tone="bad" role="alert">
        <strong>This page failed to load</strong>
        <span>The server may have been upgraded, or the connection was lost. Running jobs are not affected.</span>
        <div>
          <Button kind="main" onClick={() => location.reload()}>
            Reload
          </Button>
        </div>
      </div>
    );
  }
}

const RELOADED_AT = "stillwake reloaded";
const RELOAD_AGAIN_AFTER_MS = 30_000;

/** After an upgrade of the server the files of the old version are gone: reloads once to get the new ones. */
export function reloadOnUpgrade(): void {
  addEventListener("vite:preloadError", (event) => {
    try {
      const last = Number(sessionStorage.getItem(RELOADED_AT));
      if (!navigator.onLine || Date.now() - last < RELOAD_AGAIN_AFTER_MS) return;
      sessionStorage.setItem(RELOADED_AT, String(Date.now()));
    } catch {
      return;
    }
    event.preventDefault();
    location.reload();
  });
}
