// What a person sees of it, from the click to the silence after it, as `npm start` has it: a job is stored and a machine started, it works, stores and stops
// itself; lines appear live, errors are red; a second extraction has a machine of its own; idle machines stop; old extractions can be read.
import { spawn } from "node:child_process";
import { once } from "node:events";
import fs from "node:fs";
import os from "node:os";
import path from "node:path";
import { waitFor } from "stillwake/testing";
import { afterAll, beforeAll, expect, it } from "vitest";
import { buildPackage, ROOT } from "../../../../test/support/processes/build.ts";
import { processesWith } from "../../../../test/support/providers/provider-cases.ts";
import { browserRig, inBrowser, type Visit } from "../../../../test/support/server/browser.ts";

const dir = fs.realpathSync(fs.mkdtempSync(path.join(os.tmpdir(), "stillwake-flow-")));
const MARK = `FLOW_OF_TEST=${dir}`;
const LONG = 120_000;
const gate = path.join(dir, "open");
const tools = path.join(dir, "tools");
const browser = browserRig();
let page = "";
let api = "";
let dev: { stop(): Promise<void> } | undefined;

inBrowser("an extraction under npm start", () => {
  beforeAll(async () => {
    buildPackage();
    // The search for secrets waits until the test has seen what it wants to see.
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

  it("starts a machine for each, shows every line, and leaves nothing running", { timeout: 3 * LONG }, async () => {
    expect(await machines()).toEqual([]);
    // One click.
    const one = await browser.visit({ origin: new URL(page).origin });
    await one.goto("/extraction/");
    await one.page.getByRole("button", { name: "Extract the sample repository" }).click();
    await one.page.getByRole("heading", { level: 1, name: "Sample repository" }).waitFor();
    // A second one, of another project.
    const two = await browser.visit({ origin: new URL(page).origin });
    await two.goto("/extraction/");
    await two.page.getByLabel("Full name").fill("stillwake-sample/harbour");
    await two.page.getByRole("button", { name: "Add and extract" }).click();
    await two.page.getByRole("heading", { level: 1, name: "stillwake-sample/harbour" }).waitFor();

    // Live, while both are at work, each on a machine of its own.
    for (const visit of [one, two]) {
      for (const words of [
        "Cloning repository from GitHub...",
        "Repository cloned successfully",
        "SBOM generated - found 15 dependencies",
        "Dependencies synced (10 direct, 5 transitive)",
        "Vulnerability scan complete - found 10 vulnerabilities (3 critical)",
        "Scanning for exposed secrets...",
      ]) {
        await line(visit, words).waitFor({ timeout: LONG });
      }
    }
    const running = await machines();
    expect(running).toHaveLength(2);
    expect(machineProcesses()).toHaveLength(2);
    // Each page says which one is its own.
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
    // Stored, and whole.
    await one.page.getByRole("tab", { name: /Vulnerabilities/ }).waitFor();
    await one.page.getByText("KEV").first().waitFor();

    // Errors are red, and the next extraction of the same project can be compared with the old one.
    const project = new URL(one.page.url()).pathname.split("/").at(-1)!;
    const first = (await ask(`/projects/${project}`)).extraction.id as string;
    await ask(`/projects/${project}`, "PATCH", { branch: "nowhere" });
    await one.page.getByRole("button", { name: "Start extraction" }).click();
    await line(one, "Branch 'nowhere' not found in repository").waitFor({ timeout: LONG });
    await expectColour(one, "Branch 'nowhere' not found in repository", "error");
    await line(one, "Extraction failed: Branch 'nowhere' not found in repository").waitFor();
    await one.page.getByRole("combobox", { name: "Which job to show" }).selectOption(first);
    await line(one, "Extraction complete").waitFor();

    // With nothing to do the machines leave by themselves.
    await waitFor(async () => (await machines()).length === 0, { timeout: LONG, what: "the machines to leave" });
    await waitFor(() => machineProcesses().length === 0, { timeout: LONG, what: "their processes to end" });
    one.expectQuiet();
    two.expectQuiet();
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
  processesWith(MARK).filter(({ pid, session, variables }) => pid === session && "STILLWAKE_MACHINE" in variables);

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
      for (const { pid } of processesWith(MARK)) process.kill(pid, "SIGKILL");
    },
  };
}
