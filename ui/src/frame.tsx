// The frame around the pages of an example system: its name, a link that skips it, and the sign-in form if the server requires a token.
import { type ReactNode, useEffect } from "react";
import { Link, useLocation } from "wouter";
import { useApiQuery, useRefresh } from "./api/query.ts";
import { request } from "./api/request.ts";
import { useActivityMonitor } from "./api/user-activity.ts";
import { usePageChange } from "./page.ts";
import { ErrorCallout } from "./parts/panel.tsx";
import { Brand, SignInForm } from "./sign-in.tsx";

export const IDENTITY_PATH = "api/me";

/** `tokenVariable`: the variable that sets the server's token. `children` receives the response of api/me. */
export function Frame<Identity>({
  title,
  tokenVariable,
  children,
}: {
  title: string;
  tokenVariable: string;
  children: (identity: Identity) => ReactNode;
}) {
  const identity = useApiQuery<Identity>(IDENTITY_PATH, { once: true });
  const [path] = useLocation();
  const refresh = useRefresh();
  const paused = useActivityMonitor(refresh);
  usePageChange();
  useEffect(() => {
    // Other pages set a title that names what they show.
    if (path === "/") document.title = title;
  }, [path, title]);
  if (identity.error?.status === 401) {
    return (
      <SignInForm
        application={title}
        help={
          <>
            The value of <code>{tokenVariable}</code> on the server.
          </>
        }
        signIn={async (token) => {
          await request("POST", "api/session", { body: { token } });
          refresh();
        }}
      />
    );
  }
  return (
    <>
      <SkipLink />
      <header className="top-bar">
        <Link href="/">
          <Brand>{title}</Brand>
        </Link>
      </header>
      <main id="content" className="page" tabIndex={-1}>
        {paused && <RefreshPausedCallout />}
        {identity.data === undefined && identity.error && <ErrorCallout error={identity.error} />}
        {identity.data !== undefined && children(identity.data)}
      </main>
    </>
  );
}

export function SkipLink() {
  return (
    <a className="skip" href="#content">
      Skip to content
    </a>
  );
}

/** Fixed to the bottom: content that moves under the pointer would make the click that resumes the page miss. */
export function RefreshPausedCallout() {
  return (
    <div className="callout refresh-paused" data-tone="amber" role="status">
      This page has not been used for 10 minutes, so it has stopped refreshing. It resumes when you use it.
    </div>
  );
}
