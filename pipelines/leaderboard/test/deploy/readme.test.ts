// What the README says of deployment and cost, checked like code: the commands in it are run and print what stands there, its numbers are reckoned again, and its files are there.
import fs from "node:fs";
import path from "node:path";
import { estimate } from "stillwake/orchestrator";
import { describe, expect, it } from "vitest";
import { command } from "../../../../test/support/processes/cli-in-process.ts";

const HOME = path.resolve(import.meta.dirname, "../..");
const readme = fs.readFileSync(path.join(HOME, "README.md"), "utf8");
const script = fs.readFileSync(path.join(HOME, "deploy/schedulers.sh"), "utf8");
const costs = section("What it costs");
const deployment = section("Deployment");
const number = (value: number) => value.toLocaleString("en-US");

/** Of the size of both jobs, for executions of 15 seconds. */
const paid = (executions: number) =>
  estimate({
    ...{ jobs: executions, minutes: 0.25, provider: "cloud-run", cpus: 1, memoryMb: 2048, freeTier: true },
    // The table that the README names, whatever day it is.
    at: new Date("2026-11-01T00:00:00Z"),
  });

describe("the arithmetic", () => {
  const examples = [...costs.matchAll(/^```text\n\$ stillwake (.*)\n([\s\S]*?)^```$/gm)];

  it.each(examples.map(([, words, printed]) => [words!, printed!]))(
    "stillwake %s prints what stands there",
    async (words, printed) => {
      expect(await command(words.split(" "))).toEqual({ code: 0, stdout: printed, stderr: "" });
    },
  );

  it("both sides are told: the figure of the plan, and what is billed", () => {
    expect(examples).toHaveLength(2);
    const [commits, users] = [executions("*/5 * * * *"), executions("0 */4 * * *")];
    expect([commits, users]).toEqual([8640, 180]);
    expect(costs).toContain(
      `commits every 5 minutes are ${number(commits)} executions in 30 days, users every 4 hours ${users}, together ${number(commits + users)}`,
    );
    const plan = estimate({ jobs: 8820, minutes: 0.25, perSecond: 0.000022, cpus: 1 });
    expect(plan.vcpuSeconds).toBe(132_300);
    expect(costs).toContain(`at 15 seconds of one vCPU each that is ${number(132_300)} vCPU-seconds`);
    expect(costs).toContain("within the 240,000 that Google gives away");
    const { vcpuSeconds } = paid(8820);
    expect(vcpuSeconds).toBe(529_200);
    expect(costs).toContain(`8,820 of them are ${number(vcpuSeconds!)} vCPU-seconds, more than twice what is free`);
    expect(vcpuSeconds! / 240_000).toBeGreaterThan(2);
  });

  it("the times are those of the script, and the size is that of the jobs", () => {
    expect(script).toContain('commits="*/5 * * * *"\nusers="0 */4 * * *"\n');
    for (const name of ["commits", "users"]) {
      const job = fs.readFileSync(path.join(HOME, `deploy/${name}.job.yaml`), "utf8");
      expect(job).toMatch(/cpu: "1"\n\s+memory: 2Gi\n/);
    }
  });

  it("each row of schedules is right, and the last two cost nothing", () => {
    const rows = [
      ...costs.matchAll(/^ *\| (every [^|]*) \| (every [^|]*) \| ([^|]*) \| ([^|]*) \| ([^|]*) \| \$([\d.]+) \|$/gm),
    ];
    expect(rows).toHaveLength(4);
    for (const [, commits, users, count, vcpu, gb, amount] of rows) {
      const jobs = executions(cronOf(commits!)) + executions(cronOf(users!));
      const { vcpuSeconds, seconds, amount: dollars } = paid(jobs);
      expect([count, vcpu, gb, amount]).toEqual([
        number(jobs),
        number(vcpuSeconds!),
        number(seconds * 2),
        dollars.toFixed(2),
      ]);
    }
    expect(rows.map((row) => Number(row[6]) > 0)).toEqual([true, true, false, false]);
  });

  it("what it advises is within what is free, in 31 days too", () => {
    const [, commits, users] = /--commits "([^"]*)" --users "([^"]*)"/.exec(costs)!;
    for (const days of [30, 31]) expect(paid(executions(commits!, days) + executions(users!, days)).amount).toBe(0);
    expect(costs).toContain(`2,000 executions, ${number(paid(2000).vcpuSeconds!)} vCPU-seconds: nothing to pay`);
    expect(paid(2000).amount).toBe(0);
  });

  it("searches in a day are a budget for each execution", () => {
    expect(deployment).toContain(`30 searches in each, ${30 * executions("0 */4 * * *", 1)} a day`);
  });
});

describe("the words", () => {
  it("every file it names is there", () => {
    const named = [...`${deployment}${costs}`.matchAll(/(?:`|\s)(?:pipelines\/leaderboard\/)?(deploy\/[\w.-]+)/g)];
    expect(named.length).toBeGreaterThan(4);
    expect(named.map(([, name]) => name!).filter((name) => !fs.existsSync(path.join(HOME, name)))).toEqual([]);
    const links = [...`${deployment}${costs}`.matchAll(/\]\(([^)#:]+)(?:#[^)]*)?\)/g)].map(([, target]) => target!);
    expect(links.filter((target) => !fs.existsSync(path.join(HOME, target)))).toEqual([]);
  });

  it("its commands have flags that the script takes, and its accounts and logins are those of the files", () => {
    const flags = [...`${deployment}${costs}`.matchAll(/schedulers\.sh (.*)$/gm)].flatMap(
      ([, words]) => words!.match(/--\w+/g)!,
    );
    expect(flags.filter((flag) => !script.includes(`${flag} |`) && !script.includes(`| ${flag}`))).toEqual([]);
    const login = fs.readFileSync(path.join(HOME, "deploy/login.sql"), "utf8");
    for (const [name] of deployment.matchAll(/leaderboard_\w+/g)) expect(login).toContain(name);
    for (const [, name] of deployment.matchAll(/`(leaderboard-\w+)`/g)) expect(script).toContain(name);
  });
});

/** How often a cron of the kinds that stand here comes in so many days. */
function executions(cron: string, days = 30): number {
  const [minute = "", hour = "", ...rest] = cron.split(" ");
  expect(rest).toEqual(["*", "*", "*"]);
  const times = (part: string, of: number) =>
    part === "*" ? of : part.startsWith("*/") ? of / Number(part.slice(2)) : part.split(",").length;
  return times(minute, 60) * times(hour, 24) * days;
}

function cronOf(words: string): string {
  const [, count = "1", unit] = /^every (?:(\d+) )?(minute|hour)s?$/.exec(words)!;
  return unit === "minute" ? `*/${count} * * * *` : `0 ${count === "1" ? "*" : `*/${count}`} * * *`;
}

function section(heading: string): string {
  const found = readme.split(/^## /m).find((part) => part.startsWith(`${heading}\n`));
  expect(found, heading).toBeDefined();
  return found!;
}
