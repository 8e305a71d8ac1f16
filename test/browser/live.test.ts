// A job as people watch it: from the form to its end, through the death of its runner and of the server, on a desk and on a phone.
import fs from "node:fs";
import { afterAll, beforeAll, expect, it } from "vitest";
import { waitFor } from "../../src/testing/index.ts";
import { freshDatabase } from "../support/database/database.ts";
import { recordFigure } from "../support/figures.ts";
import { ended } from "../support/processes/aftermath.ts";
import { startWorker } from "../support/processes/workers.ts";
import { browserRig, inBrowser, layoutShift, settled, type Visit } from "../support/server/browser.ts";
import { Hand, openStage, type Stage } from "../support/server/dashboard-server.ts";

const database = await freshDatabase();
const browser = browserRig();
const VOYAGE = new URL("../fixtures/pipelines/voyage.mjs", import.meta.url).pathname;
let stage: Stage;

const heldAtSea = (ship: string) => ({ ship, miles: 12, pauseMs: 10, cargo: "tea", held: true });
const startCrew = (slots = 2) =>
  startWorker({ url: database.url, pipelines: VOYAGE, args: ["--slots", String(slots), "--store", stage.store] });
const line = ({ page }: Visit, text: string | RegExp) =>
  page.locator(".line .message").getByText(text, { exact: true });
const open = (options: { token?: string; size?: "phone" } = { token: stage.admin }) =>
  browser.visit({ origin: stage.origin, ...options });
/** Numbers of all lines that the page has, drawn or not, in the order in which they came. */
const linesOf = ({ page }: Visit): Promise<string[]> =>
  page.evaluate(
    "document.querySelector('stillwake-job').store.getSnapshot().lines.flatMap(({ kind, message }) => kind === 'log' ? message : [])",
  );

inBrowser("a job in the browser", () => {
  beforeAll(async () => {
    stage = await openStage(database);
    await stage.sql.query("select stillwake.register_pipeline('ferry', $1)", [{ on_conflict: "wait" }]);
  });
  afterAll(() => stage?.clear());

  const put = async (options: object = {}, key = "") => {
    await stage.sw.enqueue("ferry", null, { ...options, ...(key && { key }) });
    return Hand.take(stage, "ferry", "quay-1");
  };

  it("is put in by the form that is made of its schema, and is followed line by line to its end", async () => {
    await startCrew();
    const visit = await open();
    const { page } = visit;
    await visit.goto("/enqueue");
    await page.getByRole("link", { name: "voyage", exact: true }).click();
    const button = page.getByRole("button", { name: /^Enqueue/ });
    // The name is wanted, and nothing is put in without it.
    await button.click();
    expect(new URL(page.url()).pathname).toBe("/enqueue/voyage");
    await page.getByLabel(/ship/i).fill("Albatross");
    await page.getByLabel(/cargo/i).selectOption("letters");
    await button.click();
    await page.waitForURL(/\/jobs\/[0-9a-f-]{36}$/);
    await line(visit, "Loading letters onto the Albatross…").waitFor();
    await line(visit, "The Albatross is moored").waitFor();
    await page.getByRole("main").getByText("Completed", { exact: false }).first().waitFor();
    const job = await stage.sw.get(page.url().split("/").at(-1)!);
    expect(job).toMatchObject({ state: "completed", input: { ship: "Albatross", cargo: "letters", miles: 12 } });
    visit.expectQuiet();
  });

  it("loses its runner to kill -9 and is seen to go on where it was", async () => {
    const worker = await startCrew(1);
    const { id } = await stage.sw.enqueue("voyage", heldAtSea("Petrel"));
    const visit = await open();
    await visit.goto(`/jobs/${id}`);
    await line(visit, "Mile 12").waitFor();
    // The one that is at work, and the one that would stand in.
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
    visit.expectQuiet();
  });

  it("is cancelled from its page while it runs, and the page says so without being asked again", async () => {
    await startCrew(1);
    const { id } = await stage.sw.enqueue("voyage", heldAtSea("Gannet"));
    const visit = await open();
    const { page } = visit;
    await visit.goto(`/jobs/${id}`);
    await line(visit, "Mile 12").waitFor();
    await page
      .getByRole("button", { name: /^Cancel/ })
      .first()
      .click();
    await page.getByRole("dialog").getByRole("button", { name: "Cancel the job" }).click();
    await page.getByRole("main").getByText("Cancelled", { exact: false }).first().waitFor();
    expect((await ended(stage.sw, id)).state).toBe("cancelled");
    visit.expectQuiet();
  });

  it("of the same key that ended long ago is read by choosing it from the list", async () => {
    for (const n of [1, 2, 3]) {
      const hand = await put({}, "line-7");
      await hand.say(`Crossing number ${n}`);
      if (n < 3) await hand.settle("completed");
      else {
        const visit = await open();
        await visit.goto(`/jobs/${hand.job}`);
        await line(visit, "Crossing number 3").waitFor();
        const past = visit.page.getByRole("combobox", { name: /which job|past|run/i });
        expect(await past.locator("option").count()).toBe(3);
        await past.selectOption({ index: 2 });
        await line(visit, "Crossing number 1").waitFor();
        expect(await line(visit, "Crossing number 3").count()).toBe(0);
        visit.expectQuiet();
      }
    }
  });

  it("shows what a line carries when it is clicked, and a secret in it when that is asked for", async () => {
    const hand = await put();
    await hand.say({ message: "Crates counted", data: { crates: 40, password: "hunter2" } }, "Nothing more");
    const visit = await open();
    await visit.goto(`/jobs/${hand.job}`);
    const row = visit.page.locator(".line").filter({ hasText: "Crates counted" });
    await row.locator(".message").click();
    await row.getByText('"crates": 40').waitFor();
    expect(await row.textContent()).not.toContain("hunter2");
    await row.getByRole("button", { name: /hidden value/i }).click();
    expect(await row.textContent()).toContain("hunter2");
    visit.expectQuiet();
  });

  it("is filtered by level, by step and by words, by keyboard alone", async () => {
    const hand = await put();
    await hand.say(
      { message: "A calm sea", step: "sail" },
      { message: "Fog", step: "sail", level: "warning" },
      { message: "A crate is wet", step: "load", level: "warning" },
      { message: "Aground", step: "sail", level: "error" },
    );
    const visit = await open();
    const { page } = visit;
    await visit.goto(`/jobs/${hand.job}`);
    await line(visit, "Aground").waitFor();
    const shown = () => page.locator(".line.log .message").allTextContents();
    const reads = (wanted: string[]) =>
      waitFor(async () => {
        const now = await shown();
        if (JSON.stringify(now) !== JSON.stringify(wanted)) throw new Error(JSON.stringify(now));
        return true;
      });
    await reads(["A calm sea", "Fog", "A crate is wet", "Aground"]);
    const info = page.getByRole("button", { name: /^Info/ });
    await info.focus();
    await page.keyboard.press("Enter");
    expect(await info.getAttribute("aria-pressed")).toBe("false");
    await reads(["Fog", "A crate is wet", "Aground"]);
    await page.getByRole("combobox", { name: "Step" }).selectOption({ label: "sail" });
    await reads(["Fog", "Aground"]);
    await page.getByRole("log").focus();
    await page.keyboard.press("/");
    await page.keyboard.type("ground");
    await reads(["Aground"]);
    // Escape takes the words back, and nothing else that was chosen.
    await page.keyboard.press("Escape");
    await reads(["Fog", "Aground"]);
    visit.expectQuiet();
  });

  it("is followed on a phone: at the end while lines come, left alone when somebody reads above, and back by one press", async () => {
    const hand = await put();
    await hand.say(...Array.from({ length: 100 }, (_, n) => `Line ${n + 1}`));
    const visit = await open({ token: stage.admin, size: "phone" });
    const { page } = visit;
    await visit.goto(`/jobs/${hand.job}`);
    await line(visit, "Line 100").waitFor();
    await hand.say("Line 101");
    await line(visit, "Line 101").waitFor();
    const log = page.getByRole("log");
    const inSight = (text: string) =>
      page.evaluate<boolean>(`(() => {
        const find = (root) => root.querySelector(".lines") ?? [...root.querySelectorAll("*")].map((one) => one.shadowRoot && find(one.shadowRoot)).find(Boolean);
        const frame = find(document).getBoundingClientRect();
        const rows = [...find(document).querySelectorAll(".line")].filter((row) => row.querySelector(".message").textContent === ${JSON.stringify(text)});
        return rows.some((row) => { const { top, bottom } = row.getBoundingClientRect(); return bottom <= frame.bottom + 1 && top >= frame.top - 1; });
      })()`);
    await waitFor(() => inSight("Line 101"), { what: "the end to be in sight" });
    // The page is as wide as the phone, and nothing sticks out.
    expect(await page.evaluate("document.documentElement.scrollWidth")).toBeLessThanOrEqual(390);
    await log.focus();
    await page.keyboard.press("Home");
    await waitFor(() => inSight("Line 1"), { what: "the beginning to be in sight" });
    await hand.say("Line 102", "Line 103");
    const jump = page.getByRole("button", { name: /Jump to end · 2 new lines/ });
    await jump.waitFor();
    expect(await inSight("Line 1")).toBe(true);
    await jump.click();
    await waitFor(() => inSight("Line 103"), { what: "the end to be in sight again" });
    visit.expectQuiet();
  });

  it("goes on when the server under it restarts: no line is missing, none comes twice", async () => {
    const hand = await put();
    const visit = await open({});
    // The connection breaks, and the browser says so.
    visit.allow(/ERR_|\/stream|Failed to load resource/);
    let streams = 0;
    visit.context.on("request", (request) => {
      if (request.url().includes("/stream")) streams += 1;
    });
    const token = stage.sw.readToken({ job: hand.job, expiresIn: "1h" });
    await visit.goto(`/watch#job=${hand.job}&token=${token}`);
    const said: string[] = [];
    const say = async (count: number) => {
      for (let n = 0; n < count; n++) {
        said.push(`Wave ${said.length + 1}`);
        await hand.say(said.at(-1)!);
      }
    };
    await say(50);
    await waitFor(async () => (await linesOf(visit)).length >= 50, { what: "the first lines" });
    for (let round = 0; round < 2; round++) {
      let open = false;
      const talking = (async () => {
        while (!open) await say(5);
      })();
      await stage.restart(() => say(20));
      await say(20);
      open = true;
      await talking;
    }
    await hand.settle("completed");
    await waitFor(async () => (await linesOf(visit)).length >= said.length, {
      timeout: 20_000,
      what: "all lines to be there",
    });
    expect(await linesOf(visit)).toEqual(said);
    expect(streams).toBeGreaterThanOrEqual(2);
    const text = await downloaded(visit);
    expect(text.match(/Wave \d+/g)).toEqual(said);
    visit.expectQuiet();
  });

  it("moves nothing else on its page while lines, steps and progress arrive", async () => {
    const hand = await put();
    await hand.say("Boarding");
    await hand.progress({ done: 1, total: 40, sentence: "Crossing" });
    const visit = await open();
    await visit.goto(`/jobs/${hand.job}`);
    await line(visit, "Boarding").waitFor();
    await settled(visit);
    const before = await layoutShift(visit.page);
    for (let n = 2; n <= 40; n++) {
      await hand.say({
        message: `Wave ${n}`,
        step: `leg-${Math.ceil(n / 20)}`,
        ...(n % 10 === 0 && { level: "warning" as const }),
      });
      await hand.progress({ done: n, total: 40, sentence: "Crossing" });
    }
    await line(visit, "Wave 40").waitFor();
    await settled(visit);
    const shift = (await layoutShift(visit.page)) - before;
    recordFigure("layout shift of the job page while 40 lines arrive", Math.round(shift * 1e4) / 1e4, "");
    expect(shift).toBeLessThan(0.02);
    visit.expectQuiet();
  });
});

/** All lines as the panel gives them away, which are more than those that it has drawn. */
async function downloaded({ page }: Visit): Promise<string> {
  const [saved] = await Promise.all([
    page.waitForEvent("download"),
    page.getByRole("button", { name: "Download" }).click(),
  ]);
  return fs.readFileSync(await saved.path(), "utf8");
}
