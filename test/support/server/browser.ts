// A browser for tests: Debian's chromium, or the one that STILLWAKE_CHROMIUM names. Console errors, requests to other
// origins, failed requests and violations of the content security policy are recorded as complaints of a page.
import fs from "node:fs";
import axe from "axe-core";
import { type Browser, type BrowserContext, chromium, type Page, type Request } from "playwright-core";
import { afterAll, beforeAll, describe, expect, onTestFinished } from "vitest";
import { waitFor } from "../../../src/testing/index.ts";
import { buildPackage } from "../processes/build.ts";
import { install } from "../processes/debian.ts";

export type Size = "desktop" | "phone";
export type Theme = "dark" | "light";

export const SIZES: Record<Size, { width: number; height: number }> = {
  desktop: { width: 1280, height: 800 },
  phone: { width: 390, height: 844 },
};

export interface VisitOptions {
  /** The origin of the server, such as http://127.0.0.1:4700. Requests to other origins are complaints. */
  origin: string;
  /** Signs in before the first page. */
  token?: string;
  size?: Size;
  theme?: Theme;
  /** Without animations. Default true. */
  reducedMotion?: boolean;
}

export interface Visit {
  page: Page;
  context: BrowserContext;
  /** All complaints so far. */
  complaints: string[];
  /** Marks complaints as expected, such as 401 for a wrong token. */
  allow(pattern: RegExp): void;
  /** Complaints that are not allowed. */
  unexpectedComplaints(): string[];
  expectNoComplaints(): void;
  /** The number of open requests without streams. */
  pending(): number;
  goto(path: string): Promise<void>;
  close(): Promise<void>;
}

const found = findChromium();
if (typeof found === "string") console.warn(`The browser tests are skipped: ${found}`);

/** `describe` if there is a browser, else `describe.skip`. */
export const describeInBrowser = typeof found === "string" ? describe.skip : describe;

/** One browser for a test file. Called at the top of the file. */
export function useBrowser(): { visit(options: VisitOptions): Promise<Visit> } {
  let browser: Browser | undefined;
  beforeAll(async () => {
    if (typeof found === "string") return;
    buildPackage();
    browser = await launch(found.program);
  }, 180_000);
  afterAll(() => browser?.close());
  return {
    async visit(options) {
      const visit = await openVisit(browser!, options);
      onTestFinished(() => visit.close());
      return visit;
    },
  };
}

/** For use outside of tests. The caller closes it. */
export function launchBrowser(): Promise<Browser> {
  if (typeof found === "string") throw new Error(found);
  return launch(found.program);
}

export async function openVisit(browser: Browser, options: VisitOptions): Promise<Visit> {
  const { origin, token, size = "desktop", theme = "dark", reducedMotion = true } = options;
  const context = await browser.newContext({
    baseURL: origin,
    viewport: SIZES[size],
    colorScheme: theme,
    reducedMotion: reducedMotion ? "reduce" : "no-preference",
    hasTouch: size === "phone",
    isMobile: size === "phone",
    deviceScaleFactor: size === "phone" ? 2 : 1,
    locale: "en-GB",
    timezoneId: "UTC",
  });
  context.setDefaultTimeout(15_000);
  const complaints: string[] = [];
  const allowed: RegExp[] = [];
  const pending = new Set<Request>();
  await context.addInitScript(watchPolicy);
  await context.addInitScript(watchShifts);
  context.on("console", (message) => {
    const { url } = message.location();
    if (["error", "warning"].includes(message.type())) complaints.push(`${message.type()}: ${message.text()} (${url})`);
  });
  context.on("weberror", (error) => complaints.push(`page error: ${error.error().stack ?? error.error()}`));
  context.on("request", (request) => {
    const { protocol, origin: target } = new URL(request.url());
    const isInternal = ["data:", "blob:", "about:"].includes(protocol);
    if (!isInternal && target !== origin) complaints.push(`request to another origin: ${request.url()}`);
    if (!/\/stream\b/.test(request.url())) pending.add(request);
  });
  context.on("requestfinished", (request) => void pending.delete(request));
  context.on("requestfailed", (request) => {
    pending.delete(request);
    // A navigation aborts the requests of the page before.
    const reason = request.failure()?.errorText ?? "";
    if (reason !== "net::ERR_ABORTED") complaints.push(`failed: ${request.url()} ${reason}`);
  });
  context.on("dialog", (dialog) => {
    complaints.push(`dialog: ${dialog.message()}`);
    void dialog.dismiss().catch(() => {});
  });
  if (token !== undefined) await signIn(context, origin, token);
  const page = await context.newPage();
  const unexpectedComplaints = () =>
    complaints.filter((complaint) => !allowed.some((pattern) => pattern.test(complaint)));
  return {
    page,
    context,
    complaints,
    allow: (pattern) => void allowed.push(pattern),
    unexpectedComplaints,
    expectNoComplaints: () => expect(unexpectedComplaints()).toEqual([]),
    pending: () => pending.size,
    async goto(path) {
      await page.goto(path, { waitUntil: "load" });
    },
    close: () => context.close(),
  };
}

/** Waits until nothing is loading and no request was open for a moment. */
export async function waitUntilLoaded({ page, pending }: Visit): Promise<void> {
  await page.locator("h1, h2").first().waitFor();
  let quietChecks = 0;
  const isQuiet = async () => {
    quietChecks = pending() > 0 ? 0 : quietChecks + 1;
    if (quietChecks < 5) return false;
    quietChecks = 0;
    return (await page.getByText("Loading…", { exact: true }).count()) === 0;
  };
  await waitFor(isQuiet, { timeout: 20_000, interval: 40, what: `${page.url()} to be loaded` });
}

/** Sets the session cookie of the context. */
async function signIn(context: BrowserContext, origin: string, token: string): Promise<void> {
  const answer = await context.request.post(`${origin}/v1/session`, { data: { token }, headers: { origin } });
  if (!answer.ok()) throw new Error(`Could not sign in: ${answer.status()} ${await answer.text()}`);
}

/** Runs in the page before its scripts. A text, because tests are not compiled for a browser. */
const watchPolicy = `document.addEventListener("securitypolicyviolation", ({ violatedDirective, blockedURI, sourceFile }) => {
  console.error("policy: " + violatedDirective + " blocked " + blockedURI + " in " + sourceFile);
});`;

const watchShifts = `self.shifted = 0;
new PerformanceObserver((list) => {
  for (const { value, hadRecentInput } of list.getEntries()) if (!hadRecentInput) self.shifted += value;
}).observe({ type: "layout-shift", buffered: true });`;

/** The cumulative layout shift of the page. */
export function layoutShift(page: Page): Promise<number> {
  return page.evaluate<number>("self.shifted");
}

interface AxeResult {
  violations: {
    id: string;
    impact: string | null;
    help: string;
    nodes: { target: unknown[]; failureSummary?: string }[];
  }[];
}

/** Serious and critical violations found by axe-core, one line each. */
export async function axeIssues(page: Page): Promise<string[]> {
  await page.evaluate(axe.source);
  const { violations } = await page.evaluate<AxeResult>("axe.run(document, { resultTypes: ['violations'] })");
  return violations
    .filter(({ impact }) => ["serious", "critical"].includes(impact ?? ""))
    .flatMap(({ id, help, nodes }) =>
      nodes.slice(0, 5).map(({ target, failureSummary = "" }) => {
        const why = failureSummary.split("\n").slice(1).join(" ").trim();
        return `${id}: ${help}: ${target.flat().join(" ")}: ${why}`;
      }),
    );
}

function launch(executablePath: string): Promise<Browser> {
  return chromium.launch({
    executablePath,
    args: [
      // As root chromium runs only without its sandbox.
      ...(process.getuid?.() === 0 ? ["--no-sandbox"] : []),
      // Containers have a small /dev/shm.
      "--disable-dev-shm-usage",
      // No host name resolves: requests to other origins fail and are recorded.
      "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",
    ],
  });
}

/** Its path, or the reason why it is missing. */
function findChromium(): { program: string } | string {
  const { STILLWAKE_CHROMIUM: given } = process.env;
  const places = given ? [given] : ["/usr/bin/chromium", "/usr/bin/chromium-browser", "/usr/bin/google-chrome"];
  const look = () => places.find((place) => fs.existsSync(place));
  const program = look();
  if (program) return { program };
  if (given) return `there is no ${given}`;
  if (process.getuid?.() !== 0 || !fs.existsSync("/etc/debian_version"))
    return "chromium is not installed. Install it, or set STILLWAKE_CHROMIUM to the path of a browser";
  try {
    install("chromium", "fonts-dejavu-core");
  } catch (error) {
    if (!look()) return `chromium is not installed, and apt-get failed to install it: ${(error as Error).message}`;
  }
  const fetched = look();
  return fetched ? { program: fetched } : "chromium was installed, but not in a known path";
}
