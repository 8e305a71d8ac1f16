// The live page of a job: from the enqueue form to its end, through the death of its runner and a restart of the
// server, on a desktop and on a phone.
import fs from "node:fs";
import { afterAll, beforeAll, expect, it, onTestFinished } from "vitest";
import { pipeline } from "../../src/index.ts";
import { waitFor } from "../../src/testing/index.ts";
import { createWorker, implement } from "../../src/worker/index.ts";
import { freshDatabase } from "../support/database/database.ts";
import { recordFigure } from "../support/figures.ts";
import { waitForEnd } from "../support/processes/fault-checks.ts";
import { startWorker } from "../support/processes/workers.ts";
import { describeInBrowser, layoutShift, useBrowser, type Visit, waitUntilLoaded } from "../support/server/browser.ts";
import { type Dashboard, ManualWorker, startDashboard } from "../support/server/dashboard-server.ts";

const database = await freshDatabase();
const browser = useBrowser();
const VOYAGE = new URL("../fixtures/pipelines/voyage.mjs", import.meta.url).pathname;
let dashboard: Dashboard;

const heldVoyage = (ship: string) => ({ ship, miles: 12, pauseMs: 10, cargo: "tea", held: true });
const startVoyageWorker = (slots = 2) =>
  startWorker({ url: database.url, pipelines: VOYAGE, args: ["--slots", String(slots), "--store", dashboard.store] });
const line = ({ page }: Visit, text: string | RegExp) =>
  page.locator(".line .message").getByText(text, { exact: true });
const open = (options: { token?: string; size?: "phone" } = { token: dashboard.admin }) =>
  browser.visit({ origin: dashboard.origin, ...options });
/** The messages of all log lines in the store, rendered or not. */
const linesOf = ({ page }: Visit): Promise<string[]> =>
  page.evaluate(
    "document.querySelector('stillwake-job').store.getSnapshot().lines.flatMap(({ kind, message }) => kind === 'log' ? message : [])",
  );

describeInBrowser("a job in the browser", () => {
  beforeAll(async () => {
    dashboard = await startDashboard(database);
    await dashboard.sql.query("select stillwake.register_pipeline('ferry', $1)", [{ on_conflict: "wait" }]);
  });
  afterAll(() => dashboard?.close());

  const claimJob = async (options: object = {}, key = "") => {
    await dashboard.sw.enqueue("ferry", null, { ...options, ...(key && { key }) });
    return ManualWorker.claim(dashboard, "ferry", "quay-1");
  };

  it("is enqueued with the form of its schema and followed to its end", async () => {
    await startVoyageWorker();
    const visit = await open();
    const { page } = visit;
    await visit.goto("/enqueue");
    await page.getByRole("link", { name: "voyage", exact: true }).click();
    const button = page.getByRole("button", { name: /^Enqueue/ });
    // The ship is required.
    await button.click();
    expect(new URL(page.url()).pathname).toBe("/enqueue/voyage");
    await page.getByLabel(/ship/i).fill("Albatross");
    await page.getByLabel(/cargo/i).selectOption("letters");
    await button.click();
    await page.waitForURL(/\/jobs\/[0-9a-f-]{36}$/);
    await line(visit, "Loading letters onto the Albatross…").waitFor();
    await line(visit, "The Albatross is moored").waitFor();
    await page.getByRole("main").getByText("Completed", { exact: false }).first().waitFor();
    const job = await dashboard.sw.get(page.url().split("/").at(-1)!);
    expect(job).toMatchObject({ state: "completed", input: { ship: "Albatross", cargo: "letters", miles: 12 } });
    visit.expectNoComplaints();
  });

  it("resumes from its last checkpoint after its runner was killed", async () => {
    const worker = await startVoyageWorker(1);
    const { id } = await dashboard.sw.enqueue("voyage", heldVoyage("Petrel"));
    const visit = await open();
    await visit.goto(`/jobs/${id}`);
    await line(visit, "Mile 12").waitFor();
    // The running runner and the spare one.
    for (const pid of worker.runners()) process.kill(pid, "SIGKILL");
    await visit.page
      .getByText(/killed by SIGKILL/)
      .first()
      .waitFor();
    await line(visit, "The Petrel is moored").waitFor();
    const text = await downloaded(visit);
    expect(text.split("Casting off…").length - 1).toBe(2);
    expect(text.split("Loading tea onto the Petrel…").length - 1).toBe(1);
    await visit.page.getByRole("main").getByText("Completed", { exact: false }).first().waitFor();
    visit.expectNoComplaints();
  });

  it("shows a list of twenty batches as one completed step, although the batches log lines and a wait follows", async () => {
    const counting = implement(pipeline("counting"), async (job) => {
      const crates = Array.from({ length: 20 }, (_, n) => n + 1);
      const { value } = await job.each(
        "crates",
        crates,
        { batch: 1, start: "Counting crates…", end: ({ done }) => `${done} crates counted` },
        ([crate], { log }) => {
          log.info(`Crate ${crate} is counted`);
          return crate!;
        },
        { initial: 0, reduce: (sum, crate) => sum + crate },
      );
      await job.sleep("a rest", "1ms");
      job.log.info(`The sum is ${value}`);
    });
    const worker = createWorker({ url: database.url, directUrl: false, poll: "50ms", pipelines: [counting] });
    onTestFinished(() => worker.stop());
    await worker.start();
    const { id } = await dashboard.sw.enqueue("counting", null);
    const visit = await open();
    const { page } = visit;
    await visit.goto(`/jobs/${id}`);
    await line(visit, "The sum is 210").waitFor();
    await page.getByRole("main").getByText("Completed", { exact: false }).first().waitFor();
    const row = page.locator(".timeline-row").filter({ hasText: "crates" });
    await waitFor(async () => (await row.getAttribute("data-state")) === "kept", { what: "the list to be completed" });
    expect(await page.locator('.timeline-row[data-state="interrupted"]').count()).toBe(0);
    expect(await page.locator(".timeline-row .untrusted").allTextContents()).toEqual(["crates", "a rest"]);
    const steps =
      "document.querySelector('stillwake-job').store.getSnapshot().steps.map(({ name, state }) => [name, state])";
    await visit.goto(`/watch#job=${id}&token=${dashboard.sw.readToken({ job: id, expiresIn: "1h" })}`);
    await line(visit, "The sum is 210").waitFor();
    expect(await page.evaluate(steps)).toEqual([
      ["crates", "kept"],
      ["a rest", "kept"],
    ]);
    visit.expectNoComplaints();
  });

  it("is cancelled from its page while it runs", async () => {
    await startVoyageWorker(1);
    const { id } = await dashboard.sw.enqueue("voyage", heldVoyage("Gannet"));
    const visit = await open();
    const { page } = visit;
    await visit.goto(`/jobs/${id}`);
    await line(visit, "Mile 12").waitFor();
    await page
      .getByRole("button", { name: /^Cancel/ })
      .first()
      .click();
    await page.getByRole("dialog").getByRole("button", { name: "Cancel job" }).click();
    await page.getByRole("main").getByText("Cancelled", { exact: false }).first().waitFor();
    expect((await waitForEnd(dashboard.sw, id)).state).toBe("cancelled");
    visit.expectNoComplaints();
  });

  it("shows the log of an earlier job with the same key", async () => {
    for (const n of [1, 2, 3]) {
      const worker = await claimJob({}, "line-7");
      await worker.log(`Crossing number ${n}`);
      if (n < 3) await worker.settle("completed");
      else {
        const visit = await open();
        await visit.goto(`/jobs/${worker.job}`);
        await line(visit, "Crossing number 3").waitFor();
        const past = visit.page.getByRole("combobox", { name: "Job", exact: true });
        expect(await past.locator("option").count()).toBe(3);
        await past.selectOption({ index: 2 });
        await line(visit, "Crossing number 1").waitFor();
        expect(await line(visit, "Crossing number 3").count()).toBe(0);
        visit.expectNoComplaints();
      }
    }
  });

  it("shows the data of a log line, with secrets masked until they are revealed", async () => {
    const worker = await claimJob();
    await worker.log({ message: "Crates counted", data: { crates: 40, password: "hunter2" } }, "Nothing more");
    const visit = await open();
    await visit.goto(`/jobs/${worker.job}`);
    const row = visit.page.locator(".line").filter({ hasText: "Crates counted" });
    await row.locator(".message").click();
    await row.getByText('"crates": 40').waitFor();
    expect(await row.textContent()).not.toContain("hunter2");
    await row.getByRole("button", { name: /hidden value/i }).click();
    expect(await row.textContent()).toContain("hunter2");
    visit.expectNoComplaints();
  });

  it("filters its log by level, step and text, by keyboard", async () => {
    const worker = await claimJob();
    await worker.log(
      { message: "A calm sea", step: "sail" },
      { message: "Fog", step: "sail", level: "warning" },
      { message: "A crate is wet", step: "load", level: "warning" },
      { message: "Aground", step: "sail", level: "error" },
    );
    const visit = await open();
    const { page } = visit;
    await visit.goto(`/jobs/${worker.job}`);
    await line(visit, "Aground").waitFor();
    const shown = () => page.locator(".line.log .message").allTextContents();
    const expectLines = (expected: string[]) =>
      waitFor(async () => {
        const now = await shown();
        if (JSON.stringify(now) !== JSON.stringify(expected)) throw new Error(JSON.stringify(now));
        return true;
      });
    await expectLines(["A calm sea", "Fog", "A crate is wet", "Aground"]);
    const info = page.getByRole("button", { name: /^Info/ });
    await info.focus();
    await page.keyboard.press("Enter");
    expect(await info.getAttribute("aria-pressed")).toBe("false");
    await expectLines(["Fog", "A crate is wet", "Aground"]);
    await page.getByRole("combobox", { name: "Step" }).selectOption({ label: "sail" });
    await expectLines(["Fog", "Aground"]);
    await page.getByRole("log").focus();
    await page.keyboard.press("/");
    await page.keyboard.type("ground");
    await expectLines(["Aground"]);
    // Escape clears the search but not the other filters.
    await page.keyboard.press("Escape");
    await expectLines(["Fog", "Aground"]);
    visit.expectNoComplaints();
  });

  it("follows the end of the log on a phone, stops when the user scrolls up, and returns with one tap", async () => {
    const worker = await claimJob();
    await worker.log(...Array.from({ length: 100 }, (_, n) => `Line ${n + 1}`));
    const visit = await open({ token: dashboard.admin, size: "phone" });
    const { page } = visit;
    await visit.goto(`/jobs/${worker.job}`);
    await line(visit, "Line 100").waitFor();
    await worker.log("Line 101");
    await line(visit, "Line 101").waitFor();
    const log = page.getByRole("log");
    const isVisible = (text: string) =>
      page.evaluate<boolean>(`(() => {
        const find = (root) => root.querySelector(".lines") ?? [...root.querySelectorAll("*")].map((one) => one.shadowRoot && find(one.shadowRoot)).find(Boolean);
        const frame = find(document).getBoundingClientRect();
        const rows = [...find(document).querySelectorAll(".line")].filter((row) => row.querySelector(".message").textContent === ${JSON.stringify(text)});
        return rows.some((row) => { const { top, bottom } = row.getBoundingClientRect(); return bottom <= frame.bottom + 1 && top >= frame.top - 1; });
      })()`);
    await waitFor(() => isVisible("Line 101"), { what: "the end to be visible" });
    expect(await page.evaluate("document.documentElement.scrollWidth")).toBeLessThanOrEqual(390);
    await log.focus();
    await page.keyboard.press("Home");
    await waitFor(() => isVisible("Line 1"), { what: "the start to be visible" });
    await worker.log("Line 102", "Line 103");
    const jump = page.getByRole("button", { name: /Jump to end · 2 new lines/ });
    await jump.waitFor();
    expect(await isVisible("Line 1")).toBe(true);
    await jump.click();
    await waitFor(() => isVisible("Line 103"), { what: "the end to be visible again" });
    visit.expectNoComplaints();
  });

  it("survives restarts of the server without missing or repeated log lines", async () => {
    const worker = await claimJob();
    const visit = await open({});
    // The browser reports the broken connection.
    visit.allow(/ERR_|\/stream|Failed to load resource/);
    let streams = 0;
    visit.context.on("request", (request) => {
      if (request.url().includes("/stream")) streams += 1;
    });
    const token = dashboard.sw.readToken({ job: worker.job, expiresIn: "1h" });
    await visit.goto(`/watch#job=${worker.job}&token=${token}`);
    const sent: string[] = [];
    const send = async (count: number) => {
      for (let n = 0; n < count; n++) {
        sent.push(`Wave ${sent.length + 1}`);
        await worker.log(sent.at(-1)!);
      }
    };
    await send(50);
    await waitFor(async () => (await linesOf(visit)).length >= 50, { what: "the first lines" });
    for (let round = 0; round < 2; round++) {
      let open = false;
      const sending = (async () => {
        while (!open) await send(5);
      })();
      await dashboard.restart(() => send(20));
      await send(20);
      open = true;
      await sending;
    }
    await worker.settle("completed");
    await waitFor(async () => (await linesOf(visit)).length >= sent.length, {
      timeout: 20_000,
      what: "all lines to be there",
    });
    expect(await linesOf(visit)).toEqual(sent);
    expect(streams).toBeGreaterThanOrEqual(2);
    const text = await downloaded(visit);
    expect(text.match(/Wave \d+/g)).toEqual(sent);
    visit.expectNoComplaints();
  });

  it("has no layout shift while log lines, steps and progress arrive", async () => {
    const worker = await claimJob();
    await worker.log("Boarding");
    await worker.reportProgress({ done: 1, total: 40, sentence: "Crossing" });
    const visit = await open();
    await visit.goto(`/jobs/${worker.job}`);
    await line(visit, "Boarding").waitFor();
    await waitUntilLoaded(visit);
    const before = await layoutShift(visit.page);
    for (let n = 2; n <= 40; n++) {
      await worker.log({
        message: `Wave ${n}`,
        step: `leg-${Math.ceil(n / 20)}`,
        ...(n % 10 === 0 && { level: "warning" as const }),
      });
      await worker.reportProgress({ done: n, total: 40, sentence: "Crossing" });
    }
    await line(visit, "Wave 40").waitFor();
    await waitUntilLoaded(visit);
    const shift = (await layoutShift(visit.page)) - before;
    recordFigure("layout shift of the job page while 40 lines arrive", Math.round(shift * 1e4) / 1e4, "");
    expect(shift).toBeLessThan(0.02);
    visit.expectNoComplaints();
  });
});

/** All log lines as the download contains them, rendered or not. */
async function downloaded({ page }: Visit): Promise<string> {
  const [saved] = await Promise.all([
    page.waitForEvent("download"),
    page.getByRole("button", { name: "Download" }).click(),
  ]);
  return fs.readFileSync(await saved.path(), "utf8");
}
