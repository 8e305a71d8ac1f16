// `stillwake watchdog` as a process, as cron starts it, and the same call of the client.
import { afterAll, beforeAll, describe, expect, inject, it } from "vitest";
import { pipeline } from "../../src/index.ts";
import { testDatabase } from "../../src/testing/index.ts";
import { connectedDatabase } from "../support/database/connections.ts";
import { recordFigure } from "../support/figures.ts";
import { buildPackage } from "../support/processes/build.ts";
import { runCli } from "../support/processes/cli.ts";

const { database, stillwake, client } = await connectedDatabase();
const contract = pipeline("watched", { retry: { attempts: 3 } });
const empty = await testDatabase({ server: inject("server"), prefix: "watchdog_empty" });

beforeAll(buildPackage);
afterAll(() => empty.drop());

/** Enqueues a job whose lease expired a minute ago, and whose worker had time for a heartbeat since. */
async function enqueueLostJob(): Promise<string> {
  const { id } = await stillwake.enqueue(contract, null);
  const { rowCount } = await client.query("select from stillwake.claim('gone', 'default', '{watched}', 1, '1 second')");
  expect(rowCount).toBe(1);
  await client.query("update stillwake.leases set until = now() - interval '1 minute', span = '1 millisecond'");
  await client.query("insert into stillwake.outages values (now() - interval '30 seconds', '', now())");
  return id;
}

describe("stillwake watchdog", () => {
  it("recovers the jobs of a dead worker, prints its actions in aligned columns and exits 0", async () => {
    const id = await enqueueLostJob();
    const { code, stdout, stderr } = await runCli(["watchdog"], { DATABASE_URL: database.url });
    expect({ code, stderr }).toEqual({ code: 0, stderr: "" });
    const lines = stdout.trimEnd().split("\n");
    expect(lines.length).toBeGreaterThan(3);
    expect(lines.find((line) => line.startsWith("recovered"))).toMatch(/^recovered +1 {2}\S/);
    // Three columns: the counts are right-aligned, the notes left-aligned.
    const widths = lines.map((line) => /^\S.*? +(?=\d)\d+ {2}(?=\S)/.exec(line)?.[0].length);
    expect(new Set(widths).size).toBe(1);
    expect(await stillwake.get(id)).toMatchObject({ state: "queued", crashes: 1 });
  });

  it("--json prints what the client returns", async () => {
    await enqueueLostJob();
    const startedAt = performance.now();
    const { code, stdout } = await runCli(["watchdog", "--json", "--url", database.url]);
    recordFigure("stillwake watchdog, start to end", Math.round(performance.now() - startedAt), "ms");
    expect(code).toBe(0);
    const acts = JSON.parse(stdout);
    expect(acts).toContainEqual({ act: "recovered", count: 1, note: expect.any(String) });
    const again = await stillwake.watchdog();
    expect(again.map(({ act }) => act)).toEqual(acts.map(({ act }: { act: string }) => act));
    expect(again).toContainEqual({ act: "recovered", count: 0, note: expect.any(String) });
    for (const action of again)
      expect(action).toEqual({ act: expect.any(String), count: expect.any(Number), note: expect.any(String) });
  });

  it("ten concurrent runs recover a job once", async () => {
    const id = await enqueueLostJob();
    const runs = await Promise.all(Array.from({ length: 10 }, () => stillwake.watchdog()));
    const recovered = runs.flat().filter(({ act }) => act === "recovered");
    expect(recovered.reduce((sum, { count }) => sum + count, 0)).toBe(1);
    expect(await stillwake.get(id)).toMatchObject({ state: "queued" });
  });

  it("uses the schema of --schema", async () => {
    const { code, stderr } = await runCli(["watchdog", "--url", database.url, "--schema", "billing"]);
    expect(code).toBe(1);
    expect(stderr).toMatch(/"billing".*stillwake migrate/s);
  });

  it("prints a remedy when the schema, the database or the URL is missing, and does not exit 0", async () => {
    const bare = await runCli(["watchdog", "--url", empty.url]);
    expect(bare).toMatchObject({ code: 1, stdout: "", stderr: expect.stringMatching(/stillwake migrate/) });
    const away = await runCli(["watchdog", "--url", "postgres://nobody:hidden@127.0.0.1:1/nothing"]);
    expect(away).toMatchObject({ code: 1, stdout: "", stderr: expect.stringMatching(/Check that it is running/) });
    expect(away.stderr).not.toContain("hidden");
    const withoutUrl = await runCli(["watchdog"]);
    expect(withoutUrl).toMatchObject({ code: 2, stderr: expect.stringMatching(/Pass --url postgres:/) });
    for (const { stderr } of [bare, away, withoutUrl]) expect(stderr).not.toMatch(/\n {4}at /);
  });

  it("has a help with its option", async () => {
    const { code, stdout } = await runCli(["watchdog", "--help"]);
    expect(code).toBe(0);
    expect(stdout).toMatch(/stillwake watchdog {2,}recover/);
    expect(stdout).toMatch(/--json {2,}print JSON/);
  });
});
