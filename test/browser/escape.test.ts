// Text from jobs is untrusted. The dashboard and the watch page show markup, terminal sequences, forged lines and bidi
// control characters as text everywhere.
import { afterAll, beforeAll, expect, it } from "vitest";
import { pipeline } from "../../src/index.ts";
import { freshDatabase } from "../support/database/database.ts";
import { describeInBrowser, useBrowser, type Visit, waitUntilLoaded } from "../support/server/browser.ts";
import { type Dashboard, ManualWorker, startDashboard } from "../support/server/dashboard-server.ts";

const database = await freshDatabase();
const browser = useBrowser();
let dashboard: Dashboard;
let job: string;

/** Log messages, and the text that is shown. */
const messages: [string, string][] = [
  ["<img src=//evil.example/x onerror=alert(1)>", "<img src=//evil.example/x onerror=alert(1)>"],
  ["<script>alert(2)</script>", "<script>alert(2)</script>"],
  ["</div></template><style>*{display:none}</style>", "</div></template><style>*{display:none}</style>"],
  ["<a href=javascript:alert(3)>here</a>", "<a href=javascript:alert(3)>here</a>"],
  ["&lt;b&gt; &#x3c;b&#x3e;", "&lt;b&gt; &#x3c;b&#x3e;"],
  ["\u001b[31mred\u001b[0m and \u001b[1;4mbold", "red and bold"],
  ["\u001b]8;;https://evil.example/\u0007click\u001b]8;;\u0007", "␛]8;;https://evil.example/␇click␛]8;;␇"],
  ["\u001b]52;c;ZXZpbA==\u0007", "␛]52;c;ZXZpbA==␇"],
  ["\u001b[2J\u001b[1;1H", "␛[2J␛[1;1H"],
  ["All is well\rFORGED", "All is well␍FORGED"],
  ["first\n12:00:00 error: forged", "first\n12:00:00 error: forged"],
  ["invoice\u202egnp.exe", "invoice\\u{202e}gnp.exe"],
  ["\u2066in\u2069 \u200bzero \ufeffwidth", "\\u{2066}in\\u{2069} \\u{200b}zero \\u{feff}width"],
  ["\u0001\u0007\u0008\u007f\u009b", "␁␇␈␡\\u{9b}"],
  ["line\u2028separator", "line\\u{2028}separator"],
];
const evil = `<img src=//evil.example/k onerror=alert(9)>\u202eyek`;
const shown = "<img src=//evil.example/k onerror=alert(9)>\\u{202e}yek";

describeInBrowser("untrusted text", () => {
  beforeAll(async () => {
    dashboard = await startDashboard(database);
    const { sw } = dashboard;
    await sw.register(pipeline("untrusted", { retry: { attempts: 2, initial: "1ms", max: "1ms" } }));
    const options = { key: evil, tenant: evil, idempotencyKey: evil };
    job = (await sw.enqueue("untrusted", { [evil]: evil }, options)).id;
    const worker = await ManualWorker.claim(dashboard, "untrusted", "w");
    await worker.log(...messages.map(([message]) => ({ message, step: evil, data: { [evil]: message } })));
    await worker.runStep(evil.slice(0, 100), 5, evil, evil, { [evil]: evil });
    const failure = {
      name: evil,
      code: evil,
      message: evil,
      stack: `${evil}\n    at ${evil}`,
      sentence: evil,
      step: evil,
    };
    await worker.reportProgress({ done: 1, total: 2, sentence: evil });
    await worker.settle("failed", { fatal: true, failure });
    const paused = await sw.enqueue("untrusted", null);
    await sw.pause(paused.id, { by: evil, reason: evil });
    const facts = { provider: evil, size: evil, region: evil, slots: 1, warm: 0, max: 2, burst: 2, idle_exit_ms: 1000 };
    await dashboard.sql.query("select stillwake.set_machines('default', $1)", [JSON.stringify(facts)]);
    for (const ordinal of [1, 2]) {
      const life = JSON.stringify({
        ...facts,
        ordinal,
        machine: `${evil}${ordinal}`,
        burst: false,
        by: evil,
        why: evil,
      });
      const { rows } = await dashboard.sql.query("select life from stillwake.reserve_machine('default', 2, $1)", [
        life,
      ]);
      const exit = JSON.stringify({ reason: evil });
      if (ordinal === 2) await dashboard.sql.query("select stillwake.machine_ended($1, $2)", [rows[0].life, exit]);
    }
    const providerError = JSON.stringify({ code: evil, message: evil });
    await dashboard.sql.query("select stillwake.report_provider_error('default', $1)", [providerError]);
  }, 60_000);
  afterAll(() => dashboard?.close());

  const open = async (place: string, token?: string): Promise<Visit> => {
    const visit = await browser.visit({ origin: dashboard.origin, ...(token && { token }) });
    await visit.context.grantPermissions(["clipboard-read", "clipboard-write"], { origin: dashboard.origin });
    await visit.goto(place);
    await visit.page.evaluate("navigator.clipboard.writeText('untouched')");
    return visit;
  };

  it("is escaped in the log of a job, one row per line", async () => {
    const visit = await open(`/jobs/${job}`, dashboard.admin);
    await expectEscapedLog(visit);
    await expectNoInjection(visit);
  });

  it("is escaped on the watch page", async () => {
    const token = dashboard.sw.readToken({ job, expiresIn: "1h" });
    const visit = await open(`/watch#job=${job}&token=${token}`);
    await expectEscapedLog(visit);
    await expectNoInjection(visit);
  });

  it("is escaped in keys, failures, reasons and payloads on every page", async () => {
    const visit = await open(`/jobs/${job}`, dashboard.admin);
    for (const place of [`/jobs/${job}`, "/jobs", `/jobs?key=${encodeURIComponent(evil)}`, "/", "/pools"]) {
      await visit.goto(place);
      await waitUntilLoaded(visit);
      // Payloads are hidden until they are opened.
      for (const button of await visit.page.getByRole("button", { name: /^Show / }).all()) await button.click();
      for (const closed of await visit.page.locator("main details:not([open]) > summary").all()) await closed.click();
      await expectNoInjection(visit);
      const text = await visit.page.getByRole("main").innerText();
      if (place.startsWith("/jobs")) expect(text, place).toContain(shown);
      for (const sign of ["\u202e", "\u001b"]) expect(text, place).not.toContain(sign);
    }
  });
});

/** Checks the rendered rows. */
async function expectEscapedLog({ page }: Visit): Promise<void> {
  const rows = page.locator(".line.log");
  await rows.nth(messages.length - 1).waitFor();
  const texts = await rows.locator(".message").allTextContents();
  expect(texts.slice(0, messages.length)).toEqual(messages.map(([, shown]) => shown));
  const first = rows.first();
  await first.getByRole("button", { name: "Details" }).click();
  const [[, picture]] = messages as [[string, string]];
  expect(JSON.parse((await first.locator(".details .payload").textContent())!.replaceAll("\\u{", "\\\\u{"))).toEqual({
    [shown]: picture,
  });
}

/** No elements, links, handlers or styles come from the text, and the clipboard is unchanged. */
async function expectNoInjection(visit: Visit): Promise<void> {
  const made = await visit.page.evaluate<string[]>(`(() => {
    const found = [];
    const look = (root) => {
      for (const one of root.querySelectorAll("*")) {
        if (one.shadowRoot) look(one.shadowRoot);
        const leads = [one.getAttribute("src"), one.getAttribute("href")].filter((place) => place !== null);
        // A key in the query of a link is allowed.
        const away = leads.some((place) => new URL(place, document.baseURI).origin !== location.origin);
        const acts = one.getAttributeNames().some((name) => name.startsWith("on"));
        if (away || acts || one.localName === "style" || (one.localName === "script" && !one.src)) {
          found.push(one.outerHTML.slice(0, 200));
        }
      }
    };
    look(document);
    return found;
  })()`);
  expect(made).toEqual([]);
  expect(await visit.page.evaluate("navigator.clipboard.readText()")).toBe("untouched");
  visit.expectNoComplaints();
}
