// The pages on one screen, and the frame around them. Who is not signed in is asked for a token; who may not see a page is not shown the way to it.
import { useQueryClient } from "@tanstack/react-query";
import { type ComponentType, lazy, Suspense, useCallback, useLayoutEffect, useRef, useState } from "react";
import { Link, Redirect, Route, Switch, useLocation } from "wouter";
import { addressOf, call } from "./api/call.ts";
import { useMe } from "./api/nouns.ts";
import { useResting } from "./api/touched.ts";
import { type May, mayOf, Who } from "./api/who.ts";
import { arrive } from "./arrival.ts";
import { Boundary } from "./boundary.tsx";
import { JobsPage } from "./pages/jobs.tsx";
import { OverviewPage } from "./pages/overview.tsx";
import { SignInPage } from "./pages/sign-in.tsx";
import { useNotices } from "./parts/notices.tsx";
import { Wrong } from "./parts/panel.tsx";
import { inert } from "./parts/words.ts";
import { type Theme, useTheme } from "./theme.ts";
import { titleOf } from "./title.ts";

interface Page {
  path: string;
  title: string;
  page: ComponentType<{ params: Record<string, string | undefined> }>;
  /** In the menu. */
  menu?: true;
  needs?: keyof May;
}

const pages: readonly Page[] = [
  { path: "/", title: "Overview", page: OverviewPage, menu: true },
  { path: "/jobs", title: "Jobs", page: JobsPage, menu: true },
  { path: "/jobs/:id", title: "Job", page: lazy(() => import("./pages/job.tsx")) },
  { path: "/enqueue", title: "Enqueue", page: lazy(() => import("./pages/enqueue.tsx")), menu: true, needs: "operate" },
  { path: "/enqueue/:pipeline", title: "Enqueue", page: lazy(() => import("./pages/enqueue.tsx")), needs: "operate" },
  { path: "/pools", title: "Pools", page: lazy(() => import("./pages/pools.tsx")), menu: true, needs: "oversee" },
  { path: "/flow", title: "Limits", page: lazy(() => import("./pages/flow.tsx")), menu: true, needs: "oversee" },
  {
    path: "/schedules",
    title: "Schedules",
    page: lazy(() => import("./pages/schedules.tsx")),
    menu: true,
    needs: "oversee",
  },
  {
    path: "/webhooks",
    title: "Webhooks",
    page: lazy(() => import("./pages/webhooks.tsx")),
    menu: true,
    needs: "oversee",
  },
  { path: "/webhooks/:id", title: "Webhook", page: lazy(() => import("./pages/webhook.tsx")), needs: "oversee" },
  { path: "/access", title: "Access", page: lazy(() => import("./pages/access.tsx")), menu: true, needs: "admin" },
];

export function App() {
  const me = useMe();
  const [place] = useLocation();
  if (me.data === undefined && me.error && me.error.status !== 401 && me.error.status !== 403) {
    return (
      <main className="page">
        <Wrong error={me.error} />
      </main>
    );
  }
  if (me.data === undefined && !me.error) return <p className="hidden">One moment…</p>;
  const unknown = me.error?.status === 401 || me.error?.status === 403 || me.data === undefined;
  if (unknown || place === "/sign-in") return <SignInPage onIn={() => void me.refetch()} signedIn={!unknown} />;
  return (
    <Who.Provider value={{ me: me.data, may: mayOf(me.data) }}>
      <Shell name={me.data.name} role={me.data.role} tenant={me.data.tenant} may={mayOf(me.data)} />
    </Who.Provider>
  );
}

function Shell({ name, role, tenant, may }: { name: string; role: string; tenant: string | null; may: May }) {
  const [place] = useLocation();
  const [open, setOpen] = useState(false);
  const shown = pages.filter(({ needs }) => needs === undefined || may[needs]);
  useArrival(shown, place, () => setOpen(false));
  const known = useQueryClient();
  const resting = useResting(useCallback(() => void known.invalidateQueries(), [known]));
  return (
    <div className="shell">
      <a className="skip" href="#content">
        Skip to content
      </a>
      <header className="rail" data-open={open || undefined}>
        <Link href="/" className="brand">
          <img src={addressOf("mark.svg")} alt="" />
          Stillwake
        </Link>
        <button type="button" className="button menu-button" aria-expanded={open} onClick={() => setOpen(!open)}>
          Menu
        </button>
        <nav aria-label="Pages">
          <ul>
            {shown
              .filter(({ menu }) => menu)
              .map(({ path, title }) => (
                <li key={path}>
                  <Link href={path} aria-current={isHere(path, place) ? "page" : undefined}>
                    {title}
                  </Link>
                </li>
              ))}
          </ul>
        </nav>
        <div className="rail-foot">
          <ThemeChoice />
          <a href={addressOf("docs")}>API</a>
          <span className="foreign">
            {inert(name)} · {role}
            {tenant !== null && ` of ${inert(tenant)}`}
          </span>
          {name !== "local" && <SignOut />}
        </div>
      </header>
      <main id="content" className="page" tabIndex={-1}>
        {resting && (
          <div className="callout" data-tone="amber" role="status">
            Nobody has touched this page for a while, so it no longer asks the server. Move on and it will.
          </div>
        )}
        <Boundary key={place}>
          <Suspense fallback={<p className="soft">One moment…</p>}>
            <Switch>
              {shown.map(({ path, page: One }) => (
                <Route key={path} path={path}>
                  {(params) => <One params={params as Record<string, string | undefined>} />}
                </Route>
              ))}
              <Route path="/sign-in">
                <Redirect to="/" />
              </Route>
              <Route>
                <h1 tabIndex={-1}>There is nothing here</h1>
                <p>
                  The address leads nowhere, or to what you may not see. <Link href="/jobs">See all jobs</Link>
                </p>
              </Route>
            </Switch>
          </Suspense>
        </Boundary>
      </main>
    </div>
  );
}

/** A new page has its title in the tab, starts at its top, and is where the keyboard goes on. */
function useArrival(shown: readonly Page[], place: string, close: () => void): void {
  const title = shown.find(({ path }) => isHere(path, place, true))?.title;
  const before = useRef(place);
  // Before the effects of pages, which may know a better title.
  useLayoutEffect(() => {
    document.title = titleOf(title);
    if (before.current === place) return;
    before.current = place;
    close();
    scrollTo(0, 0);
    arrive();
  }, [place]);
}

function isHere(path: string, place: string, exact = false): boolean {
  const pattern = path.replaceAll(/:\w+/g, "[^/]+");
  return new RegExp(exact || path === "/" ? `^${pattern}$` : `^${pattern}(/|$)`).test(place);
}

function ThemeChoice() {
  const [theme, setTheme] = useTheme();
  return (
    <label>
      <span className="hidden">Theme</span>
      <select className="input" value={theme} onChange={(event) => setTheme(event.target.value as Theme)}>
        <option value="system">As the system</option>
        <option value="light">Light</option>
        <option value="dark">Dark</option>
      </select>
    </label>
  );
}

function SignOut() {
  const notices = useNotices();
  return (
    <button
      type="button"
      className="button"
      onClick={async () => {
        try {
          await call("DELETE", "/v1/session");
          location.assign(addressOf("sign-in"));
        } catch (error) {
          notices.refuse(error);
        }
      }}
    >
      Sign out
    </button>
  );
}
