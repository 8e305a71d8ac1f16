// Checks the README's sections on deployment and cost: its commands print the shown output, its numbers are computed
// again, and its files exist.
import fs from "node:fs";
import path from "node:path";
import { estimate } from "stillwake/orchestrator";
import { describe, expect, it } from "vitest";
import { runCommand } from "../../../../test/support/processes/cli-in-process.ts";
import { SHARED_DEPLOY } from "../../../kit/test/support/deploy.ts";

const HOME = path.resolve(import.meta.dirname, "../..");
const readme = fs.readFileSync(path.join(HOME, "README.md"), "utf8");
const script = fs.readFileSync(path.join(HOME, "deploy/schedulers.sh"), "utf8");
const costs = section("What it costs");
const deployment = section("Deployment");
const number = (value: number) => value.toLocaleString("en-US");

/** The cost of 15-second executions of the size of both jobs. */
const paid = (executions: number) =>
  estimate({
    ...{ jobs: executions, minutes: 0.25, provider: "cloud-run", cpus: 1, memoryMb: 2048, freeTier: true },
    // The price table that the README names.
    at: new Date("2026-11-01T00:00:00Z"),
  });

describe("the arithmetic", () => {
  const examples = [...costs.matchAll(/^```text\n\$ stillwake (.*)\n([\s\S]*?)^```$/gm)];

  it.each(examples.map(([, args, printed]) => [args!, printed!]))(
    "stillwake %s prints the shown output",
    async (args, printed) => {
      expect(await runCommand(args.split(" "))).toEqual({ code: 0, stdout: printed, stderr: "" });
    },
  );

  it("shows the planned and the billed figures", () => {
    expect(examples).toHaveLength(2);
    const [commits, users] = [executions("*/5 * * * *"), executions("0 */4 * * *")];
    expect([commits, users]).toEqual([8640, 180]);
    expect(costs).toContain(
      `commits every 5 minutes are ${number(commits)} executions in 30 days, users every 4 hours ${users}, together ${number(commits + users)}`,
    );
    const plan = estimate({ jobs: 8820, minutes: 0.25, perSecond: 0.000022, cpus: 1 });
    expect(plan.vcpuSeconds).toBe(132_300);
    expect(costs).toContain(`at 15 seconds of one vCPU each that is ${number(132_300)} vCPU-seconds`);
    expect(costs).toContain("within the 240,000 of the free tier");
    const { vcpuSeconds } = paid(8820);
    expect(vcpuSeconds).toBe(529_200);
    expect(costs).toContain(`8,820 of them are ${number(vcpuSeconds!)} vCPU-seconds, more than twice the free tier`);
    expect(vcpuSeconds! / 240_000).toBeGreaterThan(2);
  });

  it("uses the times of the script and the size of the jobs", () => {
    expect(script).toContain('commits="*/5 * * * *"\nusers="0 */4 * * *"\n');
    for (const name of ["commits", "users"]) {
      const job = fs.readFileSync(path.join(HOME, `deploy/${name}.job.yaml`), "utf8");
      expect(job).toMatch(/cpu: "1"\n\s+memory: 2Gi\n/);
    }
  });

  it("each row of schedules is correct, and the last two cost nothing", () => {
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

  it("the recommended schedule stays within the free tier, also in a month of 31 days", () => {
    const [, commits, users] = /--commits "([^"]*)" --users "([^"]*)"/.exec(costs)!;
    for (const days of [30, 31]) expect(paid(executions(commits!, days) + executions(users!, days)).amount).toBe(0);
    expect(costs).toContain(`2,000 executions, ${number(paid(2000).vcpuSeconds!)} vCPU-seconds: free`);
    expect(paid(2000).amount).toBe(0);
  });

  it("searches per day are the rate limit times the executions", () => {
    expect(deployment).toContain(`30 searches in each, ${30 * executions("0 */4 * * *", 1)} a day`);
  });
});

describe("the text", () => {
  it("every file it names exists", () => {
    const named = [...`${deployment}${costs}`.matchAll(/(?:`|\s)(deploy\/[\w.-]+|pipelines\/(?!\S*dist)[\w./-]+)/g)]
      .map(([, name]) => name!)
      .map((name) => path.join(name.startsWith("pipelines/") ? path.join(HOME, "../..") : HOME, name));
    expect(named.length).toBeGreaterThan(4);
    expect(named.filter((file) => !fs.existsSync(file))).toEqual([]);
    const links = [...`${deployment}${costs}`.matchAll(/\]\(([^)#:]+)(?:#[^)]*)?\)/g)].map(([, target]) => target!);
    expect(links.filter((target) => !fs.existsSync(path.join(HOME, target)))).toEqual([]);
  });

  it("its flags, accounts and logins are those of the files", () => {
    const flags = [...`${deployment}${costs}`.matchAll(/schedulers\.sh (.*)$/gm)].flatMap(
      ([, args]) => args!.match(/--\w+/g)!,
    );
    expect(flags.filter((flag) => !script.includes(` [${flag} `) && !script.includes(` ${flag} `))).toEqual([]);
    const login = fs.readFileSync(path.join(SHARED_DEPLOY, "login.sql"), "utf8");
    for (const [, role] of deployment.matchAll(/leaderboard(_\w+)/g)) expect(login).toContain(`<system>${role}`);
    for (const [, name] of deployment.matchAll(/`(leaderboard-\w+)`/g)) expect(script).toContain(name);
  });
});

/** The number of executions of a cron schedule in the given number of days. */
function executions(cron: string, days = 30): number {
  const [minute = "", hour = "", ...rest] = cron.split(" ");
  expect(rest).toEqual(["*", "*", "*"]);
  const times = (field: string, max: number) =>
    field === "*" ? max : field.startsWith("*/") ? max / Number(field.slice(2)) : field.split(",").length;
  return times(minute, 60) * times(hour, 24) * days;
}

function cronOf(interval: string): string {
  const [, count = "1", unit] = /^every (?:(\d+) )?(minute|hour)s?$/.exec(interval)!;
  return unit === "minute" ? `*/${count} * * * *` : `0 ${count === "1" ? "*" : `*/${count}`} * * *`;
}

function section(heading: string): string {
  const found = readme.split(/^## /m).find((part) => part.startsWith(`${heading}\n`));
  expect(found, heading).toBeDefined();
  return found!;
}
