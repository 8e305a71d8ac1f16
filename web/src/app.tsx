// The pages of the dashboard and the frame around them. Without a session the sign-in form is shown; pages that the
// user may not see are neither in the menu nor reachable.
import { useRefresh } from "@stillwake/ui/api/query.ts";
import { request, resolveUrl } from "@stillwake/ui/api/request.ts";
import { useActivityMonitor } from "@stillwake/ui/api/user-activity.ts";
import { escapeText } from "@stillwake/ui/format.ts";
import { RefreshPausedCallout, SkipLink } from "@stillwake/ui/frame.tsx";
import { usePageChange } from "@stillwake/ui/page.ts";
import { Button } from "@stillwake/ui/parts/button.tsx";
import { useNotices } from "@stillwake/ui/parts/notices.tsx";
import { ErrorCallout } from "@stillwake/ui/parts/panel.tsx";
import { Brand } from "@stillwake/ui/sign-in.tsx";
import { type ComponentType, lazy, Suspense, useLayoutEffect, useState } from "react";
import { Link, Redirect, Route, Switch, useLocation } from "wouter";
import { CurrentUser, type Permissions, permissionsOf } from "./api/permissions.ts";
import { useMe } from "./api/resources.ts";
import { ErrorBoundary } from "./boundary.tsx";
import { JobsPage } from "./pages/jobs.tsx";
import { OverviewPage } from "./pages/overview.tsx";
import { SignInPage } from "./pages/sign-in.tsx";
import { type Theme, useTheme } from "./theme.ts";

interface Page {
  path: string;
  title: string;
  page: ComponentType<{ params: Record<string, string | undefined> }>;
  /** Listed in the menu. */
  menu?: true;
  needs?: keyof Permissions;
}

const pages: readonly Page[] = [
  { path: "/", title: "Overview", page: OverviewPage, menu: true },
  { path: "/jobs", title: "Jobs", page: JobsPage, menu: true },
  { path: "/jobs/:id", title: "Job", page: lazy(() => import("./pages/job.tsx")) },
  { path: "/enqueue", title: "Enqueue", page: lazy(() => import("./pages/enqueue.tsx")), menu: true, needs: "operate" },
  { path: "/enqueue/:pipeline", title: "Enqueue", page: lazy(() => import("./pages/enqueue.tsx")), needs: "operate" },
  { path: "/pools", title: "Pools", page: lazy(() => import("./pages/pools.tsx")), menu: true, needs: "oversee" },
  { path: "/limits", title: "Limits", page: lazy(() => import("./pages/limits.tsx")), menu: true, needs: "oversee" },
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
  const [path] = useLocation();
  const isUnknown = me.error?.status === 401 || me.error?.status === 403;
  if (me.data === undefined && !isUnknown) {
    if (!me.error) return <p className="hidden">Loading…</p>;
    return (
      <main className="page">
        <ErrorCallout error={me.error} />
      </main>
    );
  }
  if (isUnknown || me.data === undefined || path === "/sign-in") {
    return <SignInPage onSignedIn={() => void me.refetch()} signedIn={!isUnknown} />;
  }
  const permissions = permissionsOf(me.data);
  return (
    <CurrentUser.Provider value={{ me: me.data, permissions }}>
      <Shell name={me.data.name} role={me.data.role} tenant={me.data.tenant} permissions={permissions} />
    </CurrentUser.Provider>
  );
}

function Shell({
  name,
  role,
  tenant,
  permissions,
}: {
  name: string;
  role: string;
  tenant: string | null;
  permissions: Permissions;
}) {
  const [path] = useLocation();
  const [open, setOpen] = useState(false);
  const allowed = pages.filter(({ needs }) => needs === undefined || permissions[needs]);
  const title = allowed.find((page) => matches(page.path, path, true))?.title;
  usePageChange(() => setOpen(false));
  // A layout effect, because pages may set a better title in their effects.
  useLayoutEffect(() => {
    document.title = title ? `${title} · Stillwake` : "Stillwake";
  }, [path]);
  const paused = useActivityMonitor(useRefresh());
  return (
    <div className="shell">
      <SkipLink />
      <header className="rail" data-open={open || undefined}>
        <Link href="/">
          <Brand>Stillwake</Brand>
        </Link>
        <button type="button" className="button menu-button" aria-expanded={open} onClick={() => setOpen(!open)}>
          Menu
        </button>
        <nav aria-label="Pages">
          <ul>
            {allowed
              .filter(({ menu }) => menu)
              .map((page) => (
                <li key={page.path}>
                  <Link href={page.path} aria-current={matches(page.path, path) ? "page" : undefined}>
                    {page.title}
                  </Link>
                </li>
              ))}
          </ul>
        </nav>
        <div className="rail-foot">
          <ThemeSelect />
          <a href={resolveUrl("docs")}>API</a>
          <span className="untrusted">
            {escapeText(name)} · {role}
            {tenant !== null && ` of ${escapeText(tenant)}`}
          </span>
          {name !== "local" && <SignOut />}
        </div>
      </header>
      <main id="content" className="page" tabIndex={-1}>
        {paused && <RefreshPausedCallout />}
        <ErrorBoundary key={path}>
          <Suspense fallback={<p className="soft">Loading…</p>}>
            <Switch>
              {allowed.map(({ path, page: Content }) => (
                <Route key={path} path={path}>
                  {(params) => <Content params={params as Record<string, string | undefined>} />}
                </Route>
              ))}
              <Route path="/sign-in">
                <Redirect to="/" />
              </Route>
              <Route>
                <h1 tabIndex={-1}>Page not found</h1>
                <p>
                  This page does not exist, or you do not have access to it. <Link href="/jobs">See all jobs</Link>
                </p>
              </Route>
            </Switch>
          </Suspense>
        </ErrorBoundary>
      </main>
    </div>
  );
}

/** `pattern` may have parameters such as :id. Pages below it match as well, unless `exact`. */
function matches(pattern: string, path: string, exact = false): boolean {
  const expression = pattern.replaceAll(/:\w+/g, "[^/]+");
  return new RegExp(exact || pattern === "/" ? `^${expression}$` : `^${expression}(/|$)`).test(path);
}

function ThemeSelect() {
  const [theme, setTheme] = useTheme();
  return (
    <label>
      <span className="hidden">Theme</span>
      <select className="input" value={theme} onChange={(event) => setTheme(event.target.value as Theme)}>
        <option value="system">System theme</option>
        <option value="light">Light</option>
        <option value="dark">Dark</option>
      </select>
    </label>
  );
}

function SignOut() {
  const notices = useNotices();
  const signOut = async () => {
    try {
      await request("DELETE", "/v1/session");
      location.assign(resolveUrl("sign-in"));
    } catch (error) {
      notices.showError(error);
    }
  };
  return <Button onClick={() => void signOut()}>Sign out</Button>;
}
