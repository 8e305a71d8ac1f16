// A real browser for tests: Debian's chromium, driven over its own protocol. Every page that is opened is listened to: what it complains about, what it
// asks for elsewhere and what its own policy has stopped is noise, and a page is to be quiet. STILLWAKE_CHROMIUM names another browser.
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
  /** Where the server is, such as http://127.0.0.1:4700. Nothing else may be asked for. */
  origin: string;
  /** Signs in with it before the first page. */
  token?: string;
  size?: Size;
  theme?: Theme;
  /** Most tests do not want to wait for movement. Default true. */
  reducedMotion?: boolean;
}

export interface Visit {
  page: Page;
  context: BrowserContext;
  /** What the page has complained about so far. */
  noise: string[];
  /** This is expected of it: a wrong token answers 401, and the browser says so. */
  allow(pattern: RegExp): void;
  /** Without what was allowed. */
  loud(): string[];
  /** Throws when it was not quiet. */
  expectQuiet(): void;
  /** How many requests are under way, streams aside. */
  pending(): number;
  goto(path: string): Promise<void>;
  close(): Promise<void>;
}

const found = findChromium();
if (typeof found === "string") console.warn(`The browser tests are skipped: ${found}`);

/** `describe` where there is a browser, and one that says that it is skipped where there is none. */
export const inBrowser = typeof found === "string" ? describe.skip : describe;

/** One browser for a test file: to be called at its top. */
export function browserRig(): { visit(options: VisitOptions): Promise<Visit> } {
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

/** For those who are no test: the caller closes it. */
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
  const noise: string[] = [];
  const allowed: RegExp[] = [];
  const pending = new Set<Request>();
  await context.addInitScript(watchPolicy);
  await context.addInitScript(watchShifts);
  context.on("console", (message) => {
    const { url } = message.location();
    if (["error", "warning"].includes(message.type())) noise.push(`${message.type()}: ${message.text()} (${url})`);
  });
  context.on("weberror", (error) => noise.push(`page error: ${error.error().stack ?? error.error()}`));
  context.on("request", (request) => {
    const { protocol, origin: asked } = new URL(request.url());
    const ofPage = ["data:", "blob:", "about:"].includes(protocol);
    if (!ofPage && asked !== origin) noise.push(`asked elsewhere: ${request.url()}`);
    if (!/\/stream\b/.test(request.url())) pending.add(request);
  });
  context.on("requestfinished", (request) => void pending.delete(request));
  context.on("requestfailed", (request) => {
    pending.delete(request);
    // A page that is left takes its requests with it.
    const why = request.failure()?.errorText ?? "";
    if (why !== "net::ERR_ABORTED") noise.push(`failed: ${request.url()} ${why}`);
  });
  context.on("dialog", (dialog) => {
    noise.push(`dialog: ${dialog.message()}`);
    void dialog.dismiss().catch(() => {});
  });
  if (token !== undefined) await signIn(context, origin, token);
  const page = await context.newPage();
  const loud = () => noise.filter((one) => !allowed.some((pattern) => pattern.test(one)));
  return {
    page,
    context,
    noise,
    allow: (pattern) => void allowed.push(pattern),
    loud,
    expectQuiet: () => expect(loud()).toEqual([]),
    pending: () => pending.size,
    async goto(path) {
      await page.goto(path, { waitUntil: "load" });
    },
    close: () => context.close(),
  };
}

/** Until the page has asked for all that it shows, and for nothing more for a moment. */
export async function settled({ page, pending }: Visit): Promise<void> {
  await page.locator("h1, h2").first().waitFor();
  let quiet = 0;
  const isQuiet = async () => {
    quiet = pending() > 0 ? 0 : quiet + 1;
    if (quiet < 5) return false;
    quiet = 0;
    return (await page.getByText("One moment…").count()) === 0;
  };
  await waitFor(isQuiet, { timeout: 20_000, interval: 40, what: `${page.url()} to be there` });
}

/** As the sign-in page does it; the cookie is in the context from then on. */
async function signIn(context: BrowserContext, origin: string, token: string): Promise<void> {
  const answer = await context.request.post(`${origin}/v1/session`, { data: { token }, headers: { origin } });
  if (!answer.ok()) throw new Error(`Could not sign in: ${answer.status()} ${await answer.text()}`);
}

/** Runs in the page before its own scripts; text, because the tests are not compiled for a browser. */
const watchPolicy = `document.addEventListener("securitypolicyviolation", ({ violatedDirective, blockedURI, sourceFile }) => {
  console.error("policy: " + violatedDirective + " stopped " + blockedURI + " in " + sourceFile);
});`;

const watchShifts = `self.shifted = 0;
new PerformanceObserver((list) => {
  for (const { value, hadRecentInput } of list.getEntries()) if (!hadRecentInput) self.shifted += value;
}).observe({ type: "layout-shift", buffered: true });`;

/** How much has moved on the page that nobody has moved, so far: as browsers count it, 1 is the whole of it. */
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

/** What axe-core finds serious or critical, one line each. */
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
      // Chromium does not run as root with it.
      ...(process.getuid?.() === 0 ? ["--no-sandbox"] : []),
      // Containers have a small /dev/shm.
      "--disable-dev-shm-usage",
      // No name leads anywhere: whatever the page would load from elsewhere fails and is seen.
      "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",
    ],
  });
}

/** Its path, or the reason why there is none. */
function findChromium(): { program: string } | string {
  const { STILLWAKE_CHROMIUM: given } = process.env;
  const places = given ? [given] : ["/usr/bin/chromium", "/usr/bin/chromium-browser", "/usr/bin/google-chrome"];
  const look = () => places.find((place) => fs.existsSync(place));
  const program = look();
  if (program) return { program };
  if (given) return `there is no ${given}`;
  if (process.getuid?.() !== 0 || !fs.existsSync("/etc/debian_version"))
    return "chromium is not installed, and only root on Debian may fetch it; STILLWAKE_CHROMIUM names one";
  try {
    install("chromium", "fonts-dejavu-core");
  } catch (error) {
    if (!look()) return `chromium is not installed, and apt-get could not fetch it: ${(error as Error).message}`;
  }
  const fetched = look();
  return fetched ? { program: fetched } : "chromium was installed, but is in none of the usual places";
}
