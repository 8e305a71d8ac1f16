// Scenes: a database furnished so that every page of the dashboard has something to show. Browser tests and `npm run screenshots` look at the same ones.
import { schedule } from "../../../src/index.ts";
import { travel, waitFor } from "../../../src/testing/index.ts";
import { startReceiver, status } from "../fakes/webhook-receiver.ts";
import { ended } from "../processes/aftermath.ts";
import { Hand, pass, type Stage, toPresent } from "./dashboard-server.ts";
import { endMachine, furnishMachines, pastMachines, startMachine } from "./scene-machines.ts";
import * as cast from "./scene-pipelines.ts";

/** Jobs that pages of a scene are opened for, by name; and a webhook. */
export type Jobs = Record<string, string>;

export const scenes = { empty, busy, failing, many, long } as const;
export type SceneName = keyof typeof scenes;

/** A server that has just been installed. */
async function empty(): Promise<Jobs> {
  return {};
}

/** Hours of work behind it, some of it under way, and something waiting for each reason there is. */
async function busy(stage: Stage): Promise<Jobs> {
  const { sw } = stage;
  await travel(stage.sql, "-5h");
  await sw.register(...cast.everything);
  await furnishHouse(stage);
  await history(stage);
  await furnishMachines(stage);
  await sw.costs.setBudget("pool", "scan", 0.25, { by: "maria" });
  await sw.costs.setBudget("tenant", "acme", 5, { period: "day" });
  await untilMinutesAgo(stage, 10);
  await pastMachines(stage);

  // What runs is held still by hands, with minutes behind it.
  await untilMinutesAgo(stage, 4);
  const running = await scanHalfway(stage);
  await sw.enqueue(cast.clip, { video: "https://videos.example.com/keynote.mp4", seconds: 90 });
  const render = await Hand.take(stage, "clip", "render-large-1", "render");
  await render.step("resolve", 8_000, "Resolving the video…", "Video found: 1 h 12 min");
  await render.progress({ done: 1410, total: 2700, sentence: "Rendering frames" });
  await toPresent(stage);

  const worker = await cast.startCast(stage);
  const told = { webhook: { endpoint: "billing" } };
  const done = await sw.enqueue(cast.contacts, { file: "spring.csv" }, { key: "crm-42", tenant: "acme", ...told });
  const old = await sw.enqueue(cast.contacts, { file: "autumn.csv" }, { key: "crm-42", onConflict: "wait", ...told });
  const parent = await sw.enqueue(cast.digest, { readers: 40 });
  const waiting = await sw.enqueue(cast.invoice, { number: "2207" }, { tenant: "acme" });
  for (const product of ["lamp", "chair", "desk"]) await sw.enqueue(cast.publish, { product });
  await sw.enqueue(cast.contacts, { mode: "bad", file: "broken.csv" });
  await sw.enqueue(cast.transcribe, { talk: "opening" }, { priority: 10 });
  await sw.enqueue(cast.transcribe, { talk: "closing" });
  const later = await sw.enqueue(cast.clip, { video: "https://videos.example.com/later.mp4" }, { delay: "2h" });
  await sw.enqueue(cast.extraction, { projectId: "shop", repository: "acme/shop" });
  const paused = await sw.enqueue(cast.clip, { video: "https://videos.example.com/paused.mp4" });
  await sw.pause(paused.id, { by: "maria", reason: "The rights are not cleared yet" });
  const cancelled = await sw.enqueue(cast.clip, { video: "https://videos.example.com/wrong.mp4" });
  await sw.cancel(cancelled.id, { by: "maria", reason: "The wrong video" });
  await Promise.all([ended(sw, done.id), ended(sw, old.id)]);
  await reasons(stage, ["time", "retry", "key", "limit", "children", "event", "machine"]);
  await waitFor(async () => (await sw.flow.breakers()).some(({ state }) => state === "open"), {
    what: "the breaker to open",
  });
  await delivered(stage, "billing");
  await worker.stop();
  await sw.pause({ pool: "gpu" }, { by: "maria", reason: "The cards are being replaced" });
  const machine = await scan(stage, "docs");
  await startMachine(stage, { slot: 2, arrives: false });
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

/** A bad night: everything that can go wrong has. */
async function failing(stage: Stage): Promise<Jobs> {
  const { sw } = stage;
  await travel(stage.sql, "-3h");
  await sw.register(...cast.everything);
  await furnishHouse(stage);
  const gone = await startReceiver(status(410, {}, "We have moved"), true);
  stage.defer(() => gone.close());
  await sw.webhooks.set("crm", { url: gone.url, pipelines: ["contacts"] });
  const stale = await sw.enqueue(cast.transcribe, { talk: "late" }, { expiresIn: "30m" });

  const poisoned = await scan(stage, "monorepo");
  for (let crash = 1; crash <= 3; crash++) {
    const hand = await Hand.take(stage, "extraction", `scan-${crash}`, "scan");
    if (crash === 1) await hand.step("cloning", 21_000, "Cloning repository…", "Repository cloned successfully");
    await hand.say({ step: "sbom", message: "Generating software bill of materials…" });
    await pass(stage, 90_000);
    await hand.say({ step: "sbom", level: "warning", message: "Memory is nearly gone: 61.2 of 64 GB are used" });
    await hand.settle("lost", { failure: outOfMemory });
  }
  const lost = await scan(stage, "shop");
  const first = await Hand.take(stage, "extraction", "scan-1", "scan");
  await first.step("cloning", 14_000, "Cloning repository…", "Repository cloned successfully");
  await first.settle("lost", {
    failure: { ...outOfMemory, code: "RUNNER_KILLED", message: "The runner was killed by SIGKILL" },
  });
  const second = await Hand.take(stage, "extraction", "scan-2", "scan");
  await second.step(
    "sbom",
    44_000,
    "Generating software bill of materials…",
    "SBOM generated - found 147 dependencies",
  );
  await second.settle("completed", { output: { dependencies: 147 }, missing: ["semgrep", "trufflehog"] });
  await untilMinutesAgo(stage, 1);
  await sw.watchdog();
  await toPresent(stage);

  const worker = await cast.startCast(stage);
  const failed = await sw.enqueue(cast.contacts, { mode: "bad", file: "broken.csv" }, { attempts: 1, key: "crm-42" });
  const refused = await sw.enqueue(
    cast.contacts,
    { mode: "never", file: "holiday.jpg" },
    { webhook: { endpoint: "billing" } },
  );
  for (let n = 1; n <= 12; n++) await sw.enqueue(cast.contacts, { mode: "never", file: `photo-${n}.jpg` });
  for (const product of ["lamp", "chair", "desk"]) await sw.enqueue(cast.publish, { product });
  await Promise.all([ended(sw, failed.id), ended(sw, refused.id)]);
  await waitFor(async () => (await sw.webhooks.endpoints()).some(({ disabledAt }) => disabledAt), {
    timeout: 20_000,
    what: "the endpoint to be given up",
  });
  await waitFor(async () => (await sw.flow.breakers()).some(({ state }) => state === "open"), {
    what: "the breaker to open",
  });
  await worker.stop();
  // Last, because whoever claims makes up for what is late.
  await travel(stage.sql, "-90m");
  const kept = await scan(stage, "forum");
  await furnishMachines(stage);
  await furnishMachines(stage, "render");
  for (const slot of [1, 2, 3]) {
    const broken = await startMachine(stage, { pool: "render", slot, arrives: false });
    await pass(stage, 8_000);
    await endMachine(stage, broken, { code: 1 });
  }
  await stage.sql.query("select stillwake.report_trouble('scan', $1)", [JSON.stringify(refusedToken)]);
  await sw.schedules.set(schedule("heartbeat", { cron: "*/15 * * * *", pipeline: "digest", input: { readers: 1 } }));
  await toPresent(stage);
  const [webhook] = await sw.webhooks.list({ endpoint: "mailer", limit: 1 });
  return { failed: failed.id, refused: refused.id, poisoned, lost, stale: stale.id, kept, webhook: webhook!.id };
}

/** A hundred thousand ended jobs. Written in bulk as end_jobs() would have written them one by one; `count` is for those in a hurry. */
async function many(stage: Stage, count = 100_000): Promise<Jobs> {
  await stage.sw.register(...cast.everything);
  await stage.sql.query("select from stillwake.watchdog()");
  await stage.sql.query(
    `insert into stillwake.ended_jobs (id, forget_on, state, created_at, run_at, started_at, claimed_at, ended_at, epoch, seq, attempt, max_attempts, crashes,
      priority, pipeline, pool, worker, key, input, output, failure)
    select (lpad(to_hex((extract(epoch from at) * 1000)::bigint), 12, '0') || '7' || lpad(to_hex(n % 4096), 3, '0') || '8' || lpad(to_hex(n), 15, '0'))::uuid, (at + interval '21 days')::date,
      case when n % 50 = 0 then 'failed' when n % 70 = 0 then 'cancelled' else 'completed' end, at, at, at + interval '1 s', at + interval '1 s', at + (2 + n % 97) * interval '1 s', n, 0, 1, 3, 0,
      0, (array['clip', 'contacts', 'digest', 'extraction'])[1 + n % 4], 'default', 'office-' || n % 10, case when n % 3 = 0 then 'project-' || n % 1000 end,
      jsonb_build_object('n', n), '{"ok": true}', case when n % 50 = 0 then '{"name": "Error", "message": "It broke", "code": "BROKEN"}'::jsonb end
    from (select n, now() - interval '10 days' * (1 - n::float8 / $1) as at from generate_series(1, $1::int) n) g`,
    [count],
  );
  await stage.sql.query("vacuum analyze");
  const { rows } = await stage.sql.query("select id from stillwake.ended_jobs order by id desc limit 1");
  return { newest: rows[0].id };
}

/** One job with a hundred thousand lines, which it has said by the verb that workers use. */
async function long(stage: Stage, count = 100_000): Promise<Jobs> {
  await stage.sw.register(...cast.everything);
  await stage.sw.enqueue(cast.clip, { video: "https://videos.example.com/all-night.mp4" });
  const hand = await Hand.take(stage, "clip", "render-large-1", "render");
  const levels = ["info", "info", "info", "info", "success", "info", "info", "warning", "info", "error"] as const;
  for (let from = 1; from <= count; from += 5000) {
    const lines = Array.from({ length: Math.min(5000, count - from + 1) }, (_, place) => {
      const n = from + place;
      const message =
        n % 100 === 0 ? `Frame ${n}: ${"a longer line that has to be wrapped, ".repeat(6)}` : `Frame ${n} of ${count}`;
      return {
        message,
        level: levels[n % 10]!,
        step: `part-${Math.ceil(n / 20_000)}`,
        ...(n % 50 === 0 && { data: { frame: n } }),
      };
    });
    await hand.say(...lines);
  }
  await hand.settle("completed", { output: { frames: count } });
  return { long: hand.job };
}

const refusedToken = {
  code: "PROVIDER_AUTH",
  message:
    "Fly refuses our token: 401 for POST /apps/scan-workers/machines. Make a new one: fly tokens create deploy -a scan-workers",
};

const outOfMemory = {
  name: "RunnerDied",
  code: "RUNNER_OOM",
  message: "The runner ran out of memory: its JavaScript heap was full",
};

async function scan(stage: Stage, project: string): Promise<string> {
  const input = {
    projectId: project,
    repository: `acme/${project}`,
    apiToken: "ghp_16C7e42F292c6912E7710c838347Ae178B4a",
  };
  return (await stage.sw.enqueue(cast.extraction, input, { tenant: "acme" })).id;
}

/** Ended a while ago, half a dozen times, for a drop-down of past jobs of the key; and one that is at it. */
async function scanHalfway(stage: Stage): Promise<string> {
  const id = await scan(stage, "shop");
  const { machine } = await startMachine(stage, { slot: 1 });
  const hand = await Hand.take(stage, "extraction", machine, "scan");
  await hand.step("cloning", 12_000, "Cloning repository from GitHub…", "Repository cloned successfully", {
    files: 4211,
  });
  await hand.step("sbom", 41_000, "Generating software bill of materials…", "SBOM generated - found 147 dependencies", {
    found: 147,
  });
  await hand.say({ step: "vuln_scan", message: "Running vulnerability scan…" });
  await hand.say({
    step: "vuln_scan",
    level: "warning",
    message: "The advisory database is two days old",
    data: { updated: "two days ago" },
  });
  for (let done = 12; done <= 96; done += 12) {
    await pass(stage, 9_000);
    await hand.say({ step: "vuln_scan", message: `Looked at ${done} of 147 dependencies` });
    await hand.progress({ done, total: 147, sentence: "Looking at dependencies" });
  }
  await hand.say({
    step: "vuln_scan",
    level: "error",
    message: "lodash 4.17.11: prototype pollution (critical)",
    data: { package: "lodash", score: 9.1, fixed: "4.17.12" },
  });
  return id;
}

/** Endpoints, schedules and tokens. */
async function furnishHouse(stage: Stage): Promise<void> {
  const { sw } = stage;
  const receiver = await startReceiver(status(204), true);
  const deaf = await startReceiver(status(503, {}, "Try later"), true);
  stage.defer(() => Promise.all([receiver.close(), deaf.close()]));
  await sw.webhooks.set("billing", { url: receiver.url, on: ["completed", "failed"] });
  await sw.webhooks.set("mailer", { url: deaf.url, headers: { "x-team": "letters" }, pipelines: ["contacts"] });
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

/** Hours of ordinary work, for charts and lists, until a few minutes ago. */
async function history(stage: Stage): Promise<void> {
  const { sw } = stage;
  const gone = "Repository not found - it may have been deleted or made private";
  const broken = "The video has no picture at this place";
  for (let n = 0; (await minutesAgo(stage)) > 12; n++) {
    const isScan = n % 3 === 0;
    const [name, pool] = isScan ? (["extraction", "scan"] as const) : (["clip", "render"] as const);
    if (isScan) await scan(stage, n % 2 === 0 ? "shop" : "blog");
    else await sw.enqueue(cast.clip, { video: `https://videos.example.com/${n}.mp4`, seconds: 10 + n });
    await pass(stage, 1000 + 400 * n);
    const hand = await Hand.take(stage, name, `${pool}-${n % 4}`, pool);
    const steps = isScan ? ["cloning", "sbom", "deps_sync", "vuln_scan", "uploading"] : ["resolve", "cut", "upload"];
    for (const [place, step] of steps.entries()) {
      await hand.step(step, 4_000 + ((n * 7919 + place * 104_729) % 50_000), `${step} begins…`, `${step} is done`);
    }
    const failure = { name: "Fatal", code: isScan ? "REPOSITORY_GONE" : "NO_PICTURE", message: isScan ? gone : broken };
    if (n % 11 === 7) await hand.settle("failed", { fatal: true, failure });
    else await hand.settle("completed", { output: { parts: steps.length }, missing: n % 6 === 0 ? ["semgrep"] : [] });
    await pass(stage, 130_000 * (n % 5));
  }
}

async function minutesAgo({ sql }: Stage): Promise<number> {
  const { rows } = await sql.query(
    "select -extract(epoch from shift)::float8 / 60 as minutes from stillwake.test_clock",
  );
  return rows[0].minutes;
}

async function untilMinutesAgo(stage: Stage, minutes: number): Promise<void> {
  await toPresent(stage);
  await travel(stage.sql, `-${minutes}m`);
}

async function reasons(stage: Stage, wanted: string[]): Promise<void> {
  const isThere = async () => {
    const { waiting } = await stage.sw.stats();
    const missing = wanted.filter((reason) => !waiting[reason]);
    if (missing.length > 0) throw new Error(`Nothing waits for ${missing.join(", ")}: ${JSON.stringify(waiting)}`);
    return true;
  };
  await waitFor(isThere, { timeout: 20_000, what: "jobs that wait for each reason" });
}

async function delivered(stage: Stage, endpoint: string): Promise<void> {
  const isDelivered = async () =>
    (await stage.sw.webhooks.list({ endpoint, limit: 10 })).some(({ state }) => state === "delivered");
  await waitFor(isDelivered, { timeout: 20_000, what: `a webhook to be delivered to ${endpoint}` });
}
