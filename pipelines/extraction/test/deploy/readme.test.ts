// Checks the README: its numbers are computed again, its messages are those of the code, and no setting is missing.
import fs from "node:fs";
import path from "node:path";
import { estimate } from "stillwake/orchestrator";
import { describe, expect, it } from "vitest";
import { PURPOSE } from "../../src/clone/limits.ts";
import { readServerSettings } from "../../src/server-settings.ts";
import { readSettings } from "../../src/settings.ts";

const HOME = path.resolve(import.meta.dirname, "../..");
const readme = fs.readFileSync(path.join(HOME, "README.md"), "utf8");
// Messages that the systems share are in the kit, with placeholders for the words of each system.
const shared = sourceOf(path.join(HOME, "../kit/src"))
  .replaceAll(/\$\{noun\}/g, "Extraction")
  .replaceAll(/\$\{purpose\}/g, PURPOSE);
const code = `${sourceOf(path.join(HOME, "src"))}\n${shared}`;

describe("the arithmetic", () => {
  const costs = section("What it costs");
  // The price table that the README names.
  const machine = {
    provider: "fly",
    size: "performance-8x",
    memoryMb: 65_536,
    region: "iad",
    at: new Date("2026-11-01T00:00:00Z"),
    ...{ minutes: 5, warm: 3, diskGb: 1 },
  };
  const paid = (jobs: number) => estimate({ ...machine, jobs, idleSeconds: 60 });

  it("five minutes cost what the calculator computes, at the original price and by the current table", () => {
    const original = estimate({ jobs: 1, minutes: 5, perSecond: 0.0002153 });
    expect(costs).toContain("$0.0002153 a second");
    expect(costs).toContain(`5 minutes are $${original.amount.toFixed(4)}, about 6.5 cents`);
    expect((original.amount * 100).toFixed(1)).toBe("6.5");
    const { perSecond, amount, table } = estimate({ ...machine, jobs: 1 });
    expect(table).toBe("fly 2026-10-01");
    expect(costs).toContain(
      `comes with Stillwake has $${perSecond.toFixed(8)}, of which 5 minutes are $${amount.toFixed(4)}`,
    );
  });

  it("the lines of the estimate are those of the calculator", () => {
    const lines = paid(100).lines.map(({ what, reckoning }) => `${what}|${reckoning}`);
    const shown = [...costs.matchAll(/^(\S.*?) {2,}(\S+(?: s| machines| a month)?) {2,}(.*)$/gm)].filter(
      ([, what]) => what !== "ITEM",
    );
    expect(shown).toHaveLength(7);
    for (const [, what, , because] of shown) expect(lines).toContain(`${what}|${because}`);
    const { amount, perJob, monthly } = paid(100);
    expect(shown.map(([, , is]) => is)).toEqual([
      "$0.00021302",
      "100 machines",
      "360 s",
      "36,000 s",
      `$${amount.toFixed(2)}`,
      `$${perJob.toFixed(6)}`,
      `$${monthly.toFixed(2)} a month`,
    ]);
  });

  it("each row of the monthly table is correct", () => {
    const rows = [...costs.matchAll(/^\| ([\d,]+) \| \$([\d.]+) \| \$([\d.]+) \|$/gm)];
    expect(rows.map(([, jobs]) => jobs)).toEqual(["0", "100", "1,000", "10,000"]);
    for (const [, jobs, alone, withPool] of rows) {
      const { amount, monthly } = paid(Number(jobs!.replace(",", "")));
      expect(alone).toBe(amount.toFixed(2));
      expect(withPool).toBe((amount + monthly).toFixed(2));
    }
  });
});

describe("the text", () => {
  it.each(["The steps", "When it fails"])('every message under "%s" is in the code', (heading) => {
    // Names of steps, variables and providers are not messages.
    const messages = section(heading)
      .split("`")
      .filter((text, at) => at % 2 === 1 && /[a-z] /.test(text));
    expect(messages.length).toBeGreaterThan(10);
    const missing = messages.filter((message) => !partsOf(message).every((part) => code.includes(part)));
    expect(missing).toEqual([]);
  });

  it("every file it names exists", () => {
    const named = [...readme.matchAll(/`((?:src|ui|deploy|sample|rules|test)\/[\w./-]*|tables\.sql)`/g)].map(
      ([, name]) => name!,
    );
    expect(named.length).toBeGreaterThan(10);
    expect(named.filter((name) => !fs.existsSync(path.join(HOME, name)))).toEqual([]);
    const links = [...readme.matchAll(/\]\(([^)#:]+)(?:#[^)]*)?\)/g)].map(([, target]) => target!);
    expect(links.filter((target) => !fs.existsSync(path.join(HOME, target)))).toEqual([]);
  });

  it("every setting is in a table with its default", () => {
    const read = new Set<string>();
    const spy = new Proxy(
      {
        STILLWAKE_DATABASE_URL: "postgres://x",
        STILLWAKE_STORE: "file:x",
        EXTRACTION_FLY_APP: "x",
      } as NodeJS.ProcessEnv,
      {
        get(target, name: string) {
          read.add(name);
          return target[name];
        },
      },
    );
    const { limits, hosts, githubApiUrl, semgrepConfig } = readSettings(spy);
    const { port, host, base, fly } = readServerSettings(spy);
    const settings = section("Settings");
    const known = [...read].filter(
      (name) => /^(EXTRACTION|STILLWAKE)_/.test(name) && name !== "STILLWAKE_STORE_SESSION_TOKEN",
    );
    expect(known.length).toBeGreaterThan(30);
    expect(known.filter((name) => !settings.includes(`\`${name}\``))).toEqual([]);
    const row = (name: string) =>
      settings
        .split("\n")
        .find((line) => line.includes(`\`${name}\``))!
        .split(" | ")[1];
    expect(row("EXTRACTION_CLONE_GB")).toBe(
      `${limits.cloneBytes / 2 ** 30}, ${limits.cloneFiles}, ${limits.cloneMs / 1000}`,
    );
    expect(row("EXTRACTION_SLOW_BYTES")).toBe(`${limits.slowBytes}, ${limits.slowSeconds}`);
    const { sbomMs, vulnerabilitiesMs, analysisMs, secretsMs } = limits;
    expect(row("EXTRACTION_SBOM_SECONDS")).toBe(
      [sbomMs, vulnerabilitiesMs, analysisMs, secretsMs].map((ms) => ms / 1000).join(", "),
    );
    expect(row("EXTRACTION_GITHUB_API_URL")).toBe(`\`${githubApiUrl}\``);
    expect(row("EXTRACTION_SEMGREP_CONFIG")).toBe(`\`${semgrepConfig}\``);
    expect(Object.values(hosts).every((url) => url.startsWith("https://"))).toBe(true);
    expect(row("EXTRACTION_HOST")).toBe(`\`${host}\`, ${port}, \`${base}\``);
    expect(row("EXTRACTION_FLY_SIZE")).toBe(`\`${fly!.size}\`, ${fly!.memoryMb}`);
    expect(row("EXTRACTION_WARM_MACHINES")).toBe(`${fly!.warm}, ${fly!.max}`);
  });

  it("names the versions of the tools and the number of rules and advisories", () => {
    const { dependencies } = JSON.parse(fs.readFileSync(path.join(HOME, "package.json"), "utf8"));
    for (const [name, tool] of [
      ["cdxgen", "@cyclonedx/cdxgen"],
      ["ast-grep", "@ast-grep/cli"],
      ["secretlint", "secretlint"],
    ] as const) {
      expect(readme).toContain(`${name} ${dependencies[tool]}`);
    }
    const folder = path.join(HOME, "rules/code");
    const rules = fs
      .readdirSync(folder)
      .flatMap((name) => fs.readFileSync(path.join(folder, name), "utf8").match(/^id: /gm) ?? []);
    expect(readme).toContain(
      `${{ 20: "twenty", 19: "nineteen", 21: "twenty-one", 22: "twenty-two" }[rules.length]} rules`,
    );
    const samples = fs
      .readdirSync(path.join(HOME, "sample/advisories"), { recursive: true })
      .filter((name) => /\.(json|yaml)$/.test(String(name)));
    expect(readme).toContain(`${{ 11: "eleven", 12: "twelve", 13: "thirteen" }[samples.length]} invented advisories`);
  });
});

function section(heading: string): string {
  const found = readme.split(/^## /m).find((part) => part.startsWith(`${heading}\n`));
  expect(found, heading).toBeDefined();
  return found!;
}

/** The fixed parts of a message, between its placeholders. */
function partsOf(message: string): string[] {
  return message
    .replace("GitHub...", "{provider}...")
    .split(/\{\w+(?: \w+)*\}| - /)
    .map((part) => part.trim())
    .filter((part) => part.length > 1);
}

function sourceOf(folder: string): string {
  return fs
    .readdirSync(folder, { recursive: true, encoding: "utf8" })
    .filter((name) => name.endsWith(".ts"))
    .map((name) => fs.readFileSync(path.join(folder, name), "utf8"))
    .join("\n");
}
