// Scenarios: databases in which every page of the dashboard has something to show, for browser tests and `npm run screenshots`.
import { schedule } from "../../../src/index.ts";
import { travel, waitFor } from "../../../src/testing/index.ts";
import { respondWith, startReceiver } from "../fakes/webhook-receiver.ts";
import { waitForEnd } from "../processes/fault-checks.ts";
import { type Dashboard, ManualWorker, passTime, returnToPresent } from "./dashboard-server.ts";
import { addEndedMachines, endMachine, setUpMachines, startMachine } from "./scenario-machines.ts";
import * as pipelines from "./scenario-pipelines.ts";

/** Ids of jobs by name, and of a webhook, whose pages are opened. */
export type ScenarioIds = Record<string, string>;

export const scenarios = { empty, busy, failing, many, long } as const;
export type ScenarioName = keyof typeof scenarios;

/** A new installation. */
async function empty(): Promise<ScenarioIds> {
  return {};
}

/** Hours of ended jobs, running jobs, and jobs that wait for every reason. */
async function busy(dashboard: Dashboard): Promise<ScenarioIds> {
  const { sw } = dashboard;
  await travel(dashboard.sql, "-5h");
  await sw.register(...pipelines.allPipelines);
  await setUpInstallation(dashboard);
  await runHistory(dashboard);
  await setUpMachines(dashboard);
  await sw.costs.setBudget("pool", "scan", 0.25, { by: "maria" });
  await sw.costs.setBudget("tenant", "acme", 5, { period: "day" });
  await moveToMinutesAgo(dashboard, 10);
  await addEndedMachines(dashboard);

  // Manual workers hold running jobs at a point some minutes after their start.
  await moveToMinutesAgo(dashboard, 4);
  const running = await startScan(dashboard);
  await sw.enqueue(pipelines.clip, { video: "https://videos.example.com/keynote.mp4", seconds: 90 });
  const render = await ManualWorker.claim(dashboard, "clip", "render-large-1", "render");
  await render.runStep("resolve", 8_000, "Resolving the video…", "Video found: 1 h 12 min");
  await render.reportProgress({ done: 1410, total: 2700, sentence: "Rendering frames" });
  await returnToPresent(dashboard);

  const worker = await pipelines.startScenarioWorker(dashboard);
  const notified = { webhook: { endpoint: "billing" } };
  const done = await sw.enqueue(
    pipelines.contacts,
    { file: "spring.csv" },
    { key: "crm-42", tenant: "acme", ...notified },
  );
  const old = await sw.enqueue(
    pipelines.contacts,
    { file: "autumn.csv" },
    { key: "crm-42", onConflict: "wait", ...notified },
  );
  const parent = await sw.enqueue(pipelines.digest, { readers: 40 });
  const waiting = await sw.enqueue(pipelines.invoice, { number: "2207" }, { tenant: "acme" });
  for (const product of ["lamp", "chair", "desk"]) await sw.enqueue(pipelines.publish, { product });
  await sw.enqueue(pipelines.contacts, { mode: "bad", file: "broken.csv" });
  await sw.enqueue(pipelines.transcribe, { talk: "opening" }, { priority: 10 });
  await sw.enqueue(pipelines.transcribe, { talk: "closing" });
  const later = await sw.enqueue(pipelines.clip, { video: "https://videos.example.com/later.mp4" }, { delay: "2h" });
  await sw.enqueue(pipelines.extraction, { projectId: "shop", repository: "acme/shop" }, { tenant: "acme" });
  const paused = await sw.enqueue(pipelines.clip, { video: "https://videos.example.com/paused.mp4" });
  await sw.pause(paused.id, { by: "maria", reason: "The rights are not cleared yet" });
  const cancelled = await sw.enqueue(pipelines.clip, { video: "https://videos.example.com/wrong.mp4" });
  await sw.cancel(cancelled.id, { by: "maria", reason: "The wrong video" });
  await Promise.all([waitForEnd(sw, done.id), waitForEnd(sw, old.id)]);
  await waitForReasons(dashboard, ["time", "retry", "key", "limit", "children", "event", "machine"]);
  await waitFor(async () => (await sw.flow.breakers()).some(({ state }) => state === "open"), {
    what: "the breaker to open",
  });
  await waitForDelivery(dashboard, "billing");
  await worker.stop();
  await sw.pause({ pool: "gpu" }, { by: "maria", reason: "The cards are being replaced" });
  const machine = await enqueueScan(dashboard, "docs");
  await startMachine(dashboard, { ordinal: 2, registers: false });
  await sw.flow.cap("render", 4);
  const jobs = { running, done: done.id, old: old.id, parent: parent.id, waiting: waiting.id, later: later.id };
  const { jobs: blocked } = await sw.list({ pipeline: "publish", state: "paused", limit: 1 });
  const [webhook] = await sw.webhooks.list({ endpoint: "billing", limit: 1 });
  return {
    ...jobs,
    machine,
    paused: paused.id,
    cancelled: cancelled.id,
    blocked: blocked[0]!.id,
    webhook: webhook!.id,
  };
}

/** Every kind of failure. */
async function failing(dashboard: Dashboard): Promise<ScenarioIds> {
  const { sw } = dashboard;
  await travel(dashboard.sql, "-3h");
  await sw.register(...pipelines.allPipelines);
  await setUpInstallation(dashboard);
  const gone = await startReceiver(respondWith(410, {}, "We have moved"), true);
  dashboard.onClose(() => gone.close());
  await sw.webhooks.set("crm", { url: gone.url, pipelines: ["contacts"] });
  const stale = await sw.enqueue(pipelines.transcribe, { talk: "late" }, { expiresIn: "30m" });

  const poisoned = await enqueueScan(dashboard, "monorepo");
  for (let crash = 1; crash <= 3; crash++) {
    const manual = await ManualWorker.claim(dashboard, "extraction", `scan-${crash}`, "scan");
    if (crash === 1) await manual.runStep("cloning", 21_000, "Cloning repository…", "Repository cloned successfully");
    await manual.log({ step: "sbom", message: "Generating software bill of materials…" });
    await passTime(dashboard, 90_000);
    await manual.log({ step: "sbom", level: "warning", message: "Memory is nearly gone: 61.2 of 64 GB are used" });
    await manual.settle("lost", { failure: outOfMemory });
  }
  const lost = await enqueueScan(dashboard, "shop");
  const first = await ManualWorker.claim(dashboard, "extraction", "scan-1", "scan");
  await first.runStep("cloning", 14_000, "Cloning repository…", "Repository cloned successfully");
  await first.settle("lost", {
    failure: { ...outOfMemory, code: "RUNNER_KILLED", message: "The runner was killed by SIGKILL" },
  });
  const second = await ManualWorker.claim(dashboard, "extraction", "scan-2", "scan");
  await second.runStep(
    "sbom",
    44_000,
    "Generating software bill of materials…",
    "SBOM generated - found 147 dependencies",
  );
  await second.settle("completed", { output: { dependencies: 147 }, missing: ["semgrep", "trufflehog"] });
  await moveToMinutesAgo(dashboard, 1);
  await sw.watchdog();
  await returnToPresent(dashboard);

  const worker = await pipelines.startScenarioWorker(dashboard);
  const failed = await sw.enqueue(
    pipelines.contacts,
    { mode: "bad", file: "broken.csv" },
    { attempts: 1, key: "crm-42" },
  );
  const refused = await sw.enqueue(
    pipelines.contacts,
    { mode: "never", file: "holiday.jpg" },
    { webhook: { endpoint: "billing" } },
  );
  for (let n = 1; n <= 12; n++) await sw.enqueue(pipelines.contacts, { mode: "never", file: `photo-${n}.jpg` });
  for (const product of ["lamp", "chair", "desk"]) await sw.enqueue(pipelines.publish, { product });
  await Promise.all([waitForEnd(sw, failed.id), waitForEnd(sw, refused.id)]);
  await waitFor(async () => (await sw.webhooks.endpoints()).some(({ disabledAt }) => disabledAt), {
    timeout: 20_000,
    what: "the endpoint to be disabled",
  });
  await waitFor(async () => (await sw.flow.breakers()).some(({ state }) => state === "open"), {
    what: "the breaker to open",
  });
  await worker.stop();
  // Last, because a claim fires late schedules.
  await travel(dashboard.sql, "-90m");
  const kept = await enqueueScan(dashboard, "forum");
  await setUpMachines(dashboard);
  await setUpMachines(dashboard, "render");
  for (const ordinal of [1, 2, 3]) {
    const broken = await startMachine(dashboard, { pool: "render", ordinal, registers: false });
    await passTime(dashboard, 8_000);
    await endMachine(dashboard, broken, { code: 1 });
  }
  await dashboard.sql.query("select stillwake.report_provider_error('scan', $1)", [JSON.stringify(rejectedToken)]);
  await sw.schedules.set(schedule("heartbeat", { cron: "*/15 * * * *", pipeline: "digest", input: { readers: 1 } }));
  await returnToPresent(dashboard);
  const [webhook] = await sw.webhooks.list({ endpoint: "mailer", limit: 1 });
  return { failed: failed.id, refused: refused.id, poisoned, lost, stale: stale.id, kept, webhook: webhook!.id };
}

/** Many ended jobs, inserted in bulk in the form in which end_jobs() writes them. */
async function many(dashboard: Dashboard, count = 100_000): Promise<ScenarioIds> {
  await dashboard.sw.register(...pipelines.allPipelines);
  await dashboard.sql.query("select from stillwake.watchdog()");
  await dashboard.sql.query(
    `insert into stillwake.ended_jobs (id, forget_on, state, created_at, run_at, started_at, claimed_at, ended_at, epoch, seq, attempt, max_attempts, crashes,
      priority, pipeline, pool, worker, key, input, output, failure)
    select (lpad(to_hex((extract(epoch from at) * 1000)::bigint), 12, '0') || '7' || lpad(to_hex(n % 4096), 3, '0') || '8' || lpad(to_hex(n), 15, '0'))::uuid, (at + interval '21 days')::date,
      case when n % 50 = 0 then 'failed' when n % 70 = 0 then 'cancelled' else 'completed' end, at, at, at + interval '1 s', at + interval '1 s', at + (2 + n % 97) * interval '1 s', n, 0, 1, 3, 0,
      0, (array['clip', 'contacts', 'digest', 'extraction'])[1 + n % 4], 'default', 'office-' || n % 10, case when n % 3 = 0 then 'project-' || n % 1000 end,
      jsonb_build_object('n', n), '{"ok": true}', case when n % 50 = 0 then '{"name": "Error", "message": "It broke", "code": "BROKEN"}'::jsonb end
    from (select n, now() - interval '10 days' * (1 - n::float8 / $1) as at from generate_series(1, $1::int) n) g`,
    [count],
  );
  await dashboard.sql.query("vacuum analyze");
  const { rows } = await dashboard.sql.query("select id from stillwake.ended_jobs order by id desc limit 1");
  return { newest: rows[0].id };
}

/** One job with many log lines, written through the SQL function of workers. */
async function long(dashboard: Dashboard, count = 100_000): Promise<ScenarioIds> {
  await dashboard.sw.register(...pipelines.allPipelines);
  await dashboard.sw.enqueue(pipelines.clip, { video: "https://videos.example.com/all-night.mp4" });
  const manual = await ManualWorker.claim(dashboard, "clip", "render-large-1", "render");
  const levels = ["info", "info", "info", "info", "success", "info", "info", "warning", "info", "error"] as const;
  for (let from = 1; from <= count; from += 5000) {
    const lines = Array.from({ length: Math.min(5000, count - from + 1) }, (_, index) => {
      const n = from + index;
      const message =
        n % 100 === 0 ? `Frame ${n}: ${"a longer line that has to be wrapped, ".repeat(6)}` : `Frame ${n} of ${count}`;
      return {
        message,
        level: levels[n % 10]!,
        step: `part-${Math.ceil(n / 20_000)}`,
        ...(n % 50 === 0 && { data: { frame: n } }),
      };
    });
    await manual.log(...lines);
  }
  await manual.settle("completed", { output: { frames: count } });
  return { long: manual.job };
}

const rejectedToken = {
  code: "PROVIDER_AUTH",
  message:
    "Fly rejects the token: 401 for POST /apps/scan-workers/machines. Make a new one: fly tokens create deploy -a scan-workers",
};

const outOfMemory = {
  name: "RunnerDied",
  code: "RUNNER_OOM",
  message: "The runner ran out of memory: its JavaScript heap was full",
};

async function enqueueScan(dashboard: Dashboard, project: string): Promise<string> {
  const input = {
    projectId: project,
    repository: `acme/${project}`,
    apiToken: "ghp_16C7e42F292c6912E7710c838347Ae178B4a",
  };
  return (await dashboard.sw.enqueue(pipelines.extraction, input, { tenant: "acme" })).id;
}

/** A running scan with steps, warnings and progress. */
async function startScan(dashboard: Dashboard): Promise<string> {
  const id = await enqueueScan(dashboard, "shop");
  const { machine } = await startMachine(dashboard, { ordinal: 1 });
  const manual = await ManualWorker.claim(dashboard, "extraction", machine, "scan");
  await manual.runStep("cloning", 12_000, "Cloning repository from GitHub…", "Repository cloned successfully", {
    files: 4211,
  });
  await manual.runStep(
    "sbom",
    41_000,
    "Generating software bill of materials…",
    "SBOM generated - found 147 dependencies",
    {
      found: 147,
    },
  );
  await manual.log({ step: "vuln_scan", message: "Running vulnerability scan…" });
  await manual.log({
    step: "vuln_scan",
    level: "warning",
    message: "The advisory database is two days old",
    data: { updated: "two days ago" },
  });
  for (let done = 12; done <= 96; done += 12) {
    await passTime(dashboard, 9_000);
    await manual.log({ step: "vuln_scan", message: `Looked at ${done} of 147 dependencies` });
    await manual.reportProgress({ done, total: 147, sentence: "Looking at dependencies" });
  }
  await manual.log({
    step: "vuln_scan",
    level: "error",
    message: "lodash 4.17.11: prototype pollution (critical)",
    data: { package: "lodash", score: 9.1, fixed: "4.17.12" },
  });
  return id;
}

/** Endpoints, schedules and tokens. */
async function setUpInstallation(dashboard: Dashboard): Promise<void> {
  const { sw } = dashboard;
  const receiver = await startReceiver(respondWith(204), true);
  const failing = await startReceiver(respondWith(503, {}, "Try later"), true);
  dashboard.onClose(() => Promise.all([receiver.close(), failing.close()]));
  await sw.webhooks.set("billing", { url: receiver.url, on: ["completed", "failed"] });
  await sw.webhooks.set("mailer", { url: failing.url, headers: { "x-team": "letters" }, pipelines: ["contacts"] });
  await sw.schedules.set(
    schedule("weekly-digest", {
      cron: "0 7 * * mon",
      zone: "Europe/Berlin",
      pipeline: "digest",
      input: { readers: 400 },
    }),
  );
  await sw.schedules.set(
    schedule("nightly-scan", { cron: "30 2 * * *", pipeline: "transcribe", input: { talk: "nightly" } }),
  );
  await sw.schedules.set(schedule("old-import", { cron: "@hourly", pipeline: "transcribe", input: {} }));
  await sw.schedules.pause("old-import", { by: "maria" });
  await sw.tokens.create({ name: "grafana", role: "reader" });
  await sw.tokens.create({ name: "backend", role: "operator", expiresIn: "90d" });
  await sw.tokens.create({ name: "acme portal", role: "reader", tenant: "acme" });
  await sw.tokens.create({ name: "scan pool", role: "worker" });
  const { id } = await sw.tokens.create({ name: "left the company", role: "admin" });
  await sw.tokens.revoke(id, { by: "maria" });
}

/** Hours of ended jobs, until a few minutes ago. */
async function runHistory(dashboard: Dashboard): Promise<void> {
  const { sw } = dashboard;
  const gone = "Repository not found - it may have been deleted or made private";
  const broken = "The video has no picture at this place";
  for (let n = 0; (await minutesAgo(dashboard)) > 12; n++) {
    const isScan = n % 3 === 0;
    const [name, pool] = isScan ? (["extraction", "scan"] as const) : (["clip", "render"] as const);
    if (isScan) await enqueueScan(dashboard, n % 2 === 0 ? "shop" : "blog");
    else await sw.enqueue(pipelines.clip, { video: `https://videos.example.com/${n}.mp4`, seconds: 10 + n });
    await passTime(dashboard, 1000 + 400 * n);
    const manual = await ManualWorker.claim(dashboard, name, `${pool}-${n % 4}`, pool);
    const steps = isScan ? ["cloning", "sbom", "deps_sync", "vuln_scan", "uploading"] : ["resolve", "cut", "upload"];
    for (const [index, step] of steps.entries()) {
      await manual.runStep(step, 4_000 + ((n * 7919 + index * 104_729) % 50_000), `${step} begins…`, `${step} is done`);
    }
    const failure = { name: "Fatal", code: isScan ? "REPOSITORY_GONE" : "NO_PICTURE", message: isScan ? gone : broken };
    if (n % 11 === 7) await manual.settle("failed", { fatal: true, failure });
    else await manual.settle("completed", { output: { parts: steps.length }, missing: n % 6 === 0 ? ["semgrep"] : [] });
    await passTime(dashboard, 130_000 * (n % 5));
  }
}

async function minutesAgo({ sql }: Dashboard): Promise<number> {
  const { rows } = await sql.query(
    "select -extract(epoch from shift)::float8 / 60 as minutes from stillwake.test_clock",
  );
  return rows[0].minutes;
}

async function moveToMinutesAgo(dashboard: Dashboard, minutes: number): Promise<void> {
  await returnToPresent(dashboard);
  await travel(dashboard.sql, `-${minutes}m`);
}

async function waitForReasons(dashboard: Dashboard, wanted: string[]): Promise<void> {
  const isThere = async () => {
    const { waiting } = await dashboard.sw.stats();
    const missing = wanted.filter((reason) => !waiting[reason]);
    if (missing.length > 0) throw new Error(`No job waits for ${missing.join(", ")}: ${JSON.stringify(waiting)}`);
    return true;
  };
  await waitFor(isThere, { timeout: 20_000, what: "jobs that wait for each reason" });
}

async function waitForDelivery(dashboard: Dashboard, endpoint: string): Promise<void> {
  const isDelivered = async () =>
    (await dashboard.sw.webhooks.list({ endpoint, limit: 10 })).some(({ state }) => state === "delivered");
  await waitFor(isDelivered, { timeout: 20_000, what: `a webhook to be delivered to ${endpoint}` });
}
