// An extraction under `npm start`, in a browser: a click starts a machine, its log appears live, results are stored,
// and the idle machine stops. A second extraction has its own machine; earlier extractions can be read.
import { spawn } from "node:child_process";
import { once } from "node:events";
import fs from "node:fs";
import os from "node:os";
import path from "node:path";
import { waitFor } from "stillwake/testing";
import { afterAll, beforeAll, expect, it } from "vitest";
import { buildPackage, ROOT } from "../../../../test/support/processes/build.ts";
import { findProcesses } from "../../../../test/support/providers/provider-cases.ts";
import { describeInBrowser, useBrowser, type Visit } from "../../../../test/support/server/browser.ts";

const dir = fs.realpathSync(fs.mkdtempSync(path.join(os.tmpdir(), "stillwake-flow-")));
const MARK = `FLOW_OF_TEST=${dir}`;
const LONG = 120_000;
const gate = path.join(dir, "open");
const tools = path.join(dir, "tools");
const browser = useBrowser();
let page = "";
let api = "";
let dev: { stop(): Promise<void> } | undefined;

describeInBrowser("an extraction under npm start", () => {
  beforeAll(async () => {
    buildPackage();
    // The secret scan waits until the test has seen both extractions running.
    fs.mkdirSync(tools);
    fs.writeFileSync(path.join(tools, "trufflehog"), `#!/bin/sh\nwhile [ ! -e ${gate} ]; do sleep 0.1; done\n`, {
      mode: 0o755,
    });
    dev = await start();
  }, LONG);
  afterAll(async () => {
    await dev?.stop();
    fs.rmSync(dir, { recursive: true, force: true, maxRetries: 5 });
  }, LONG);

  it("starts a machine for each, shows every log line, and leaves nothing running", { timeout: 3 * LONG }, async () => {
    expect(await machines()).toEqual([]);
    const one = await browser.visit({ origin: new URL(page).origin });
    await one.goto("/extraction/");
    await one.page.getByRole("button", { name: "Extract the sample repository" }).click();
    await one.page.getByRole("heading", { level: 1, name: "Sample repository" }).waitFor();
    // A second extraction, of another project.
    const two = await browser.visit({ origin: new URL(page).origin });
    await two.goto("/extraction/");
    await two.page.getByLabel("Full name").fill("stillwake-sample/harbour");
    await two.page.getByRole("button", { name: "Add and extract" }).click();
    await two.page.getByRole("heading", { level: 1, name: "stillwake-sample/harbour" }).waitFor();

    // Live, while both run, each on its own machine.
    for (const visit of [one, two]) {
      for (const message of [
        "Cloning repository from GitHub...",
        "Repository cloned successfully",
        "SBOM generated - found 15 dependencies",
        "Dependencies synced (10 direct, 5 transitive)",
        "Vulnerability scan complete - found 10 vulnerabilities (3 critical)",
        "Scanning for exposed secrets...",
      ]) {
        await line(visit, message).waitFor({ timeout: LONG });
      }
    }
    const running = await machines();
    expect(running).toHaveLength(2);
    expect(machineProcesses()).toHaveLength(2);
    // Each page names its own machine.
    const shown = await Promise.all(
      [one, two].map(async ({ page: shows }) => {
        await shows
          .getByText(/sw-\w{8}-scan-m\d/)
          .first()
          .waitFor();
        return running.map((name) => shows.getByText(name).count());
      }),
    );
    const counts = await Promise.all(shown.map((row) => Promise.all(row)));
    expect(counts.map((row) => row.filter((count) => count > 0).length)).toEqual([1, 1]);
    expect(counts[0]).not.toEqual(counts[1]);
    await expectColour(one, "Repository cloned successfully", "success");
    await expectColour(one, "Vulnerability scanning unavailable (dep-scan not installed)", "warning");

    fs.writeFileSync(gate, "");
    for (const visit of [one, two]) await line(visit, "Extraction complete").waitFor({ timeout: LONG });
    // The results are stored.
    await one.page.getByRole("tab", { name: /Vulnerabilities/ }).waitFor();
    await one.page.getByText("KEV").first().waitFor();

    // Errors are red, and an earlier extraction of the project can be read.
    const project = new URL(one.page.url()).pathname.split("/").at(-1)!;
    const first = (await ask(`/projects/${project}`)).extraction.id as string;
    await ask(`/projects/${project}`, "PATCH", { branch: "nowhere" });
    await one.page.getByRole("button", { name: "Start extraction" }).click();
    await line(one, "Branch 'nowhere' not found in repository").waitFor({ timeout: LONG });
    await expectColour(one, "Branch 'nowhere' not found in repository", "error");
    await line(one, "Extraction failed: Branch 'nowhere' not found in repository").waitFor();
    await one.page.getByRole("combobox", { name: "Job", exact: true }).selectOption(first);
    await line(one, "Extraction complete").waitFor();

    // Idle machines stop.
    await waitFor(async () => (await machines()).length === 0, { timeout: LONG, what: "the machines to leave" });
    await waitFor(() => machineProcesses().length === 0, { timeout: LONG, what: "their processes to end" });
    one.expectNoComplaints();
    two.expectNoComplaints();
  });
});

interface BrowserGlobals {
  getComputedStyle(of: unknown): { color: string };
}

const line = ({ page: shows }: Visit, text: string) =>
  shows.locator(".line .message").getByText(text, { exact: true }).first();

/** Of the mark before the line, as the browser draws it: blue, green, yellow or red by the level. */
async function expectColour({ page: shows }: Visit, text: string, level: string): Promise<void> {
  const row = shows.locator(`.line.${level}`, { hasText: text }).first();
  // In the page, whose globals are not those of this file.
  const drawn = await row
    .locator(".mark")
    .evaluate((mark) => (globalThis as unknown as BrowserGlobals).getComputedStyle(mark).color);
  const [red = 0, green = 0, blue = 0] = (drawn.match(/[\d.]+/g) ?? []).map(Number);
  const hue = {
    success: green > red && green > blue,
    warning: red > blue && green > blue,
    error: red > green && red > blue,
  };
  expect(hue[level as keyof typeof hue], `${text}: ${red} ${green} ${blue}`).toBe(true);
}

const machineProcesses = () =>
  findProcesses(MARK).filter(({ pid, session, variables }) => pid === session && "STILLWAKE_MACHINE" in variables);

async function machines(): Promise<string[]> {
  const { machines: up } = (await (await fetch(`${api}/v1/machines`)).json()) as {
    machines: { worker: string; pool: string }[];
  };
  return up.filter(({ pool }) => pool === "scan").map(({ worker }) => worker);
}

// biome-ignore lint/suspicious/noExplicitAny: what the API answers.
async function ask(place: string, method = "GET", body?: object): Promise<any> {
  const headers = { "content-type": "application/json", origin: new URL(page).origin };
  const answer = await fetch(`${page}api${place}`, { method, headers, ...(body && { body: JSON.stringify(body) }) });
  return answer.json();
}

async function start() {
  const { PATH = "", HOME = "" } = process.env;
  const args = ["dev", "--demo", "--config", path.join(ROOT, "pipelines/stillwake.config.mjs")];
  const child = spawn(process.execPath, [path.join(ROOT, "dist/cli/index.js"), ...args], {
    cwd: dir,
    detached: true,
    env: {
      ...{ PATH, HOME, NO_COLOR: "1", FLOW_OF_TEST: dir, EXTRACTION_TOOL_PATH: `${tools}:${PATH}` },
      ...{ STILLWAKE_PORT: "0", STILLWAKE_EXAMPLES_PORT: "0", STILLWAKE_EXAMPLES_IDLE: "2s" },
    },
  });
  let said = "";
  for (const stream of [child.stdout, child.stderr]) stream.on("data", (data) => (said += data));
  const closed = once(child, "close");
  await waitFor(() => /Stop with Ctrl-C/.test(said) || child.exitCode !== null, { timeout: LONG, what: "the banner" });
  [, api = ""] = /is at (\S+)\n/.exec(said) ?? [];
  [, page = ""] = /(http\S+\/extraction\/)/.exec(said) ?? [];
  expect(page, said).toMatch(/^http/);
  return {
    async stop() {
      if (child.exitCode === null) process.kill(-child.pid!, "SIGINT");
      await closed;
      for (const { pid } of findProcesses(MARK)) process.kill(pid, "SIGKILL");
    },
  };
}
