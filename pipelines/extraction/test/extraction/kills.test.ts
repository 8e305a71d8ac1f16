// One extraction whose runner or worker is killed by SIGKILL in every step. It completes, finished steps are not repeated, and
// there is one set of rows and reports.
import fs from "node:fs";
import http from "node:http";
import type { AddressInfo } from "node:net";
import path from "node:path";
import { commitFolder } from "@stillwake/kit/demo/git-server";
import { waitFor } from "stillwake/testing";
import { afterAll, expect, it } from "vitest";
import { recordFigure } from "../../../../test/support/figures.ts";
import { startWorker, type WorkerProcess } from "../../../../test/support/processes/workers.ts";
import { faultyGitServer } from "../../../kit/test/support/git-server.ts";
import { extraction } from "../../src/contract.ts";
import { SAMPLES } from "../../src/demo/sample.ts";
import { PIPELINE, setUpExtractions } from "../support/extractions.ts";

const setup = await setUpExtractions();
const TIME = 60_000;
const root = path.join(setup.folder, "repositories");
const tools = path.join(setup.folder, "tools");
const calls = path.join(setup.folder, "calls");
fs.mkdirSync(tools);
await commitFolder(path.join(SAMPLES, "repository"), path.join(root, "acme/site.git"), process.env.PATH ?? "");
const server = await faultyGitServer({ root });

/** Scripts that hang on the first call, until they are killed. */
const REPORTS: Record<string, string> = {
  depscan: "", // No report: the built-in matcher is used.
  semgrep: `for a in "$@"; do case "$a" in --output=*) echo '{"results": [], "errors": []}' > "\${a#--output=}";; esac; done`,
  trufflehog: "exit 0",
};
for (const [name, report] of Object.entries(REPORTS)) {
  // --help does not count as a call.
  const script = `#!/bin/sh\ncase "$*" in *--help*) exit 0 ;; esac\necho ${name} >> ${calls}\nif [ "$(grep -c ${name} ${calls})" = 1 ]; then exec sleep 600; fi\n${report}\n`;
  fs.writeFileSync(path.join(tools, name), script, { mode: 0o755 });
}
const feed = await startFeed();
afterAll(async () => {
  await server.close();
  feed.server.closeAllConnections();
  feed.server.close();
});

const called = (name: string) =>
  fs.existsSync(calls)
    ? fs
        .readFileSync(calls, "utf8")
        .split("\n")
        .filter((line) => line === name).length
    : 0;

const start = (env: Record<string, string>) =>
  startWorker({
    url: setup.url,
    pipelines: PIPELINE,
    env: {
      ...setup.env,
      EXTRACTION_GITHUB_URL: server.url,
      EXTRACTION_ALLOW_ADDRESSES: "127.0.0.1/32",
      EXTRACTION_TOOL_PATH: tools,
      ...env,
    },
    args: ["--pool", "scan", "--slots", "1", "--lease", "2s", "--store", setup.store],
  });

it("resumes after the last finished step, whatever is killed in the next one", { timeout: 6 * TIME }, async () => {
  const { pool, stillwake } = setup;
  // One after the other, so that each scan is killed separately.
  const env = { EXTRACTION_SIDE_BY_SIDE: "no", EXTRACTION_EPSS: feed.url };
  // The test kills more often than the contract allows; each worker registers the contract again.
  await pool.query(
    `create function public.raise_crash_limit() returns trigger language plpgsql as 'begin new.crash_limit := 100; return new; end';
     create trigger raise_crash_limit before insert or update on stillwake.pipelines for each row execute function public.raise_crash_limit();
     create function public.slow() returns trigger language plpgsql as 'begin perform pg_advisory_xact_lock_shared(4242); return new; end';
     create trigger slow before insert on stillwake.artifacts for each row when (new.name like 'reports/%') execute function public.slow()`,
  );
  let worker: WorkerProcess = await start(env);
  const { id } = await stillwake.enqueue(extraction, await setup.input({ repository: "acme/site" }), { attempts: 100 });

  /** Kills the whole worker or only its runners, in turn. */
  let kills = 0;
  const kill = async (before?: () => Promise<unknown>) => {
    kills += 1;
    const { epoch } = await stillwake.get(id);
    if (kills % 2 === 0) {
      for (const pid of worker.runners()) process.kill(pid, "SIGKILL");
    } else {
      const runners = worker.runners();
      worker.signal("SIGKILL");
      for (const pid of runners) process.kill(pid, "SIGKILL");
      await worker.exited;
      worker = await start(env);
    }
    await before?.();
    await waitFor(async () => BigInt((await stillwake.get(id)).epoch) > BigInt(epoch), {
      timeout: TIME,
      what: "the next attempt",
    });
  };
  const waitForLog = (text: string) =>
    waitFor(async () => (await stillwake.logs(id)).some(({ message }) => message.startsWith(text)), {
      timeout: TIME,
      what: text,
    });
  /** Locks a table until a session waits for it and the work is done. */
  const locked = async (table: string, work: () => Promise<void>) => {
    const holder = await pool.connect();
    try {
      await holder.query(`begin; lock table ${table} in access exclusive mode`);
      const waits = `select 1 from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock' and query ~ $1`;
      // Not on the holder: pg_stat_activity does not change within a transaction.
      const waited = async () => (await pool.query(waits, [table.split(".")[1]])).rows.length > 0;
      await waitFor(waited, { timeout: TIME, what: `a session that waits for ${table}` });
      await work();
    } finally {
      await holder.query("rollback");
      holder.release();
    }
  };

  // cloning: the server does not respond.
  server.faults["acme/site"] = "hang";
  await waitFor(() => server.requests.length > 0, { timeout: TIME, what: "a git request" });
  const hung = server.requests.length;
  await kill();
  delete server.faults["acme/site"];
  await waitForLog("Repository cloned successfully").catch(() => {});
  expect(hung).toBeGreaterThan(0);
  // sbom: while cdxgen runs.
  await waitFor(() => processesWith("cdxgen", worker.scratch).length > 0, { timeout: TIME, what: "cdxgen" });
  const sync = locked("extraction.dependencies", () => kill());
  await kill();
  // deps_sync: while it waits for the table.
  await sync;
  // vuln_scan, semgrep, trufflehog: while the program runs; the feed: during its request.
  await waitFor(() => called("depscan") === 1, { timeout: TIME, what: "dep-scan" });
  await kill();
  await waitFor(() => feed.requests() === 1, { timeout: TIME, what: "a request of the feed" });
  await kill();
  await waitFor(() => called("semgrep") === 1, { timeout: TIME, what: "semgrep" });
  await kill();
  await waitFor(() => called("trufflehog") === 1, { timeout: TIME, what: "trufflehog" });
  // uploading: while a report is being stored.
  const holder = await pool.connect();
  await holder.query("select pg_advisory_lock(4242)");
  await kill();
  const waits = "select 1 from pg_stat_activity where datname = current_database() and wait_event = 'advisory'";
  await waitFor(async () => (await pool.query(waits)).rows.length > 0, { timeout: TIME, what: "a report" });
  // The waiting statement holds the lease: Postgres does not notice that its client is dead.
  await kill(() => holder.query("select pg_advisory_unlock(4242)"));
  holder.release();
  // storing: while its rows are being written.
  await locked("extraction.repositories", () => kill());

  const { job, lines } = await setup.waitForJob(id);
  expect(job.state, lines.join("\n")).toBe("completed");
  expect(kills).toBe(9);
  // A step starts again only if it was killed: none starts three times, none after it has finished.
  const starts = (text: string) => lines.filter((line) => line.startsWith(`info ${text}`)).length;
  const ends = (text: string) => lines.filter((line) => line.startsWith(`success ${text}`)).length;
  const steps = {
    "Cloning repository": "Repository cloned",
    "Generating software bill": "SBOM generated",
    "Syncing dependencies": "Dependencies synced",
    "Running vulnerability scan": "Vulnerability scan complete",
    "Running static code": "Static analysis complete",
    "Scanning for exposed secrets": "Secret scan complete",
    "Uploading reports": "Reports uploaded",
  };
  // The last lines before a kill may be lost.
  expect(
    Object.keys(steps).filter((text) => starts(text) > 2),
    lines.join("\n"),
  ).toEqual([]);
  expect(Object.values(steps).filter((text) => ends(text) > 1)).toEqual([]);
  const { rows: kept } = await pool.query("select step, count(*)::int from stillwake.checkpoints group by step");
  expect(kept.filter(({ count }) => count > 1)).toEqual([]);
  expect(job.missing).toEqual([]);
  expect(["depscan", "semgrep", "trufflehog"].map(called)).toEqual([2, 2, 2]);
  expect(feed.requests()).toBe(2);
  expect(lines.at(-1)).toBe("success Extraction complete");

  const count = async (sql: string) => (await pool.query(sql)).rows[0].count;
  expect(await count("select count(*)::int from extraction.extractions")).toBe(1);
  expect(await count("select count(*)::int from extraction.dependencies")).toBe(15);
  expect(await count("select count(*)::int from extraction.reports")).toBe(4);
  const { rows: found } = await pool.query("select id, purl from extraction.vulnerabilities");
  expect(found).toHaveLength((job.output as { vulnerabilities: { total: number } }).vulnerabilities.total);
  const artifacts = (await stillwake.artifacts(id)).map(({ name }) => name);
  expect(artifacts.filter((name) => name.startsWith("reports/"))).toHaveLength(3);
  recordFigure("extraction: killed in every step", kills, "kills", "one job, each step completed once");
});

it("repeats three concurrent scans that were killed", { timeout: 3 * TIME }, async () => {
  fs.rmSync(calls);
  const worker = await start({});
  const { id } = await setup.stillwake.enqueue(extraction, await setup.input({ repository: "acme/site" }));
  const callCounts = () => ["depscan", "semgrep", "trufflehog"].map(called);
  await waitFor(() => callCounts().every((count) => count === 1), { timeout: TIME, what: "all three scans to run" });
  for (const pid of worker.runners()) process.kill(pid, "SIGKILL");
  const { job, lines } = await setup.waitForJob(id);
  expect(job, lines.join("\n")).toMatchObject({ state: "completed", attempt: 2, crashes: 1, missing: [] });
  expect(callCounts()).toEqual([2, 2, 2]);
  expect(lines.filter((line) => line.startsWith("success SBOM generated"))).toHaveLength(1);
  expect(lines.at(-1)).toBe("success Extraction complete");
});

function processesWith(...texts: string[]): number[] {
  return fs
    .readdirSync("/proc")
    .filter((name) => /^\d+$/.test(name))
    .map(Number)
    .filter((pid) => {
      try {
        const command = fs.readFileSync(`/proc/${pid}/cmdline`, "utf8");
        return texts.every((text) => command.includes(text));
      } catch {
        return false;
      }
    });
}

/** Serves EPSS scores; the first request gets no response. */
async function startFeed() {
  let requests = 0;
  const served = http.createServer((_, response) => {
    requests += 1;
    if (requests > 1) response.end(fs.readFileSync(path.join(SAMPLES, "epss.csv")));
  });
  await new Promise<void>((resolve) => served.listen(0, "127.0.0.1", resolve));
  const { port } = served.address() as AddressInfo;
  return { url: `http://127.0.0.1:${port}/epss.csv`, requests: () => requests, server: served };
}
