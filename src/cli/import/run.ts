// Runs stillwake import: opens both sides, moves the jobs and schedules, and prints the report.
import type pg from "pg";
import type { Config } from "../../config.ts";
import type { ImportSource } from "../../db/import/source.ts";
import { InvalidInput } from "../../errors.ts";
import { escapeLine } from "../../text/escape.ts";
import { formatCount, formatPlural } from "../../text/format.ts";
import { parseInteger } from "../arguments.ts";
import type { CommandContext } from "../command.ts";
import type { Flags } from "../flags.ts";
import type { Screen } from "../output/screen.ts";
import { type Column, printTable } from "../output/table.ts";
import type { MovedQueue, MovedSchedule, Mover } from "./move.ts";

const SCHEMAS = { "pg-boss": "pgboss", "graphile-worker": "graphile_worker" } as const;
/** Jobs per statement. */
const BATCH = 500;

export async function runImport(
  { flags, args: [, ...queues], config, screen }: CommandContext,
  source: ImportSource["name"],
): Promise<number> {
  const limit = parseInteger(flags.limit, "limit");
  if (limit !== undefined && limit < 1) {
    throw new InvalidInput("--limit must be at least 1", { field: "limit", remedy: "Leave it out to move all jobs" });
  }
  const map = parseMap(flags.map ?? []);
  const dryRun = Boolean(flags.dryRun);
  const [{ requireDatabaseUrl }, { checkTarget, openImportConnection }, { Mover }, { readImportPipelines }] =
    await Promise.all([
      import("../connection.ts"),
      import("../../db/import/connection.ts"),
      import("./move.ts"),
      import("../../db/import/target.ts"),
    ]);
  const url = requireDatabaseUrl(flags.url ?? config.databaseUrl);
  const target = await openImportConnection(url);
  let opened: { source: ImportSource; client: pg.Client | undefined } | undefined;
  try {
    const schema = await checkTarget(target, flags.schema ?? config.schema);
    opened = await openSource(source, queues, { url, target, flags, screen });
    const pipelines = await readImportPipelines(target, schema);
    const options = {
      source: opened.source,
      pipelines,
      map,
      skipInvalid: Boolean(flags.skipInvalid) || dryRun,
      keys: !flags.noKeys,
      idempotent: opened.client !== target,
    };
    const mover = new Mover(options, await opened.source.queues());
    const notes = await opened.source.notes();
    await moveAll({ mover, ...opened, target, schema, dryRun, limit, schedules: !flags.noSchedules });
    report(screen, mover, { source: opened.source, dryRun, notes, json: Boolean(flags.json) });
    if (mover.moved > 0 && !dryRun) await pokeOrchestrator(config);
    return dryRun && mover.invalid > 0 ? 1 : 0;
  } finally {
    const { closeConnection } = await import("../../db/connection.ts");
    await opened?.source.close?.();
    if (opened?.client && opened.client !== target) await closeConnection(opened.client);
    await closeConnection(target);
  }
}

function parseMap(entries: readonly string[]): Map<string, string> {
  return new Map(
    entries.map((entry) => {
      const at = entry.lastIndexOf("=");
      if (at > 0 && at < entry.length - 1) return [entry.slice(0, at), entry.slice(at + 1)];
      throw new InvalidInput(`--map ${JSON.stringify(entry)} is not queue=pipeline`, {
        field: "map",
        remedy: "Write --map sendEmail=send-email",
      });
    }),
  );
}

interface OpenContext {
  url: string;
  target: pg.Client;
  flags: Flags;
  screen: Screen;
}

/** `client` is the connection to the source: the one to Stillwake if both are in one database, undefined for Redis. */
async function openSource(
  name: ImportSource["name"],
  queues: readonly string[],
  { url, target, flags, screen }: OpenContext,
): Promise<{ source: ImportSource; client: pg.Client | undefined }> {
  if (name === "bullmq") {
    const { openBullMq } = await import("./bullmq.ts");
    if (flags.from === undefined || !/^rediss?:\/\//.test(flags.from)) {
      throw new InvalidInput("import bullmq needs the address of Redis", {
        field: "from",
        remedy: "Pass --from redis://localhost:6379",
      });
    }
    const onNote = (note: string) => screen.printStderr(note);
    return { source: await openBullMq({ url: flags.from, prefix: flags.prefix, queues, onNote }), client: undefined };
  }
  const { openImportConnection } = await import("../../db/import/connection.ts");
  const separate = flags.from !== undefined && flags.from !== url;
  const client = separate ? await openImportConnection(flags.from!) : target;
  const schema = flags.sourceSchema ?? SCHEMAS[name];
  try {
    if (name === "pg-boss") {
      const { openPgBoss } = await import("../../db/import/pg-boss.ts");
      return { source: await openPgBoss(client, schema, queues), client };
    }
    const { openGraphileWorker } = await import("../../db/import/graphile-worker.ts");
    return { source: await openGraphileWorker(client, schema, queues), client };
  } catch (error) {
    if (separate) await client.end();
    throw error;
  }
}

interface Move {
  mover: Mover;
  source: ImportSource;
  client: pg.Client | undefined;
  target: pg.Client;
  schema: string;
  dryRun: boolean;
  limit: number | undefined;
  schedules: boolean;
}

/**
 * In one database: one transaction for everything. In two: each batch is committed in Stillwake first, then removed
 * from the source, under row locks of the source (Postgres) or while the queue is paused (BullMQ).
 */
async function moveAll(move: Move): Promise<void> {
  const { mover, source, client, target, schema, dryRun, limit } = move;
  const [{ inTransaction }, { storeJobs }] = await Promise.all([
    import("../../db/import/connection.ts"),
    import("../../db/import/target.ts"),
  ]);
  const shared = client === target;
  const inSource = <T>(work: () => Promise<T>) => (client ? inTransaction(client, !dryRun, work) : work());
  const inTarget = <T>(work: () => Promise<T>) => (shared ? work() : inTransaction(target, !dryRun, work));

  /** Returns how many jobs were read. */
  const moveBatch = async (): Promise<number> => {
    const jobs = await source.next(BATCH);
    const prepared = mover.prepare(jobs);
    const stored = prepared.map(({ job }) => job);
    let existing = 0;
    if (!dryRun && stored.length > 0) {
      source.storing?.(stored);
      existing = await inTarget(() =>
        storeJobs(
          target,
          schema,
          prepared.map((one) => one.stored),
        ),
      );
      await source.remove(stored);
    }
    mover.count(stored, existing);
    return jobs.length;
  };
  const moveEverything = async () => {
    const schedules = move.schedules ? await source.schedules() : [];
    mover.requirePipelines(schedules);
    await source.open({ dryRun, limit });
    while ((await moveBatch()) > 0);
    await moveSchedules(move, schedules, inTarget);
  };

  if (shared || dryRun || !client) return inSource(moveEverything);
  // Two Postgres databases: a transaction of the source per batch, so that few jobs are locked, and few are in both
  // databases if the process is interrupted between the two commits.
  await inSource(async () => {
    const schedules = move.schedules ? await source.schedules() : [];
    mover.requirePipelines(schedules);
    await moveSchedules(move, schedules, inTarget);
  });
  const skip: string[] = [];
  for (let read = 1; read > 0 && mover.moved < (limit ?? Number.POSITIVE_INFINITY); ) {
    read = await inSource(async () => {
      await source.open({ dryRun, limit: Math.min(BATCH, (limit ?? Number.POSITIVE_INFINITY) - mover.moved), skip });
      return moveBatch();
    });
    skip.push(...mover.takeSkipped());
  }
}

async function moveSchedules(
  { mover, source, target, schema, dryRun }: Move,
  schedules: Awaited<ReturnType<ImportSource["schedules"]>>,
  inTarget: <T>(work: () => Promise<T>) => Promise<T>,
): Promise<void> {
  const { storeSchedule } = await import("../../db/import/target.ts");
  for (const schedule of schedules) {
    const wanted = mover.toSchedule(schedule);
    if (!wanted) continue;
    // A dry run rolls back.
    const problem = await inTarget(() => storeSchedule(target, schema, wanted));
    if (problem !== undefined) mover.schedules.at(-1)!.problem = problem;
    else if (!dryRun) await source.removeSchedule(schedule);
  }
}

async function pokeOrchestrator(config: Config): Promise<void> {
  if (!config.pokeUrl) return;
  const [{ Poker }, { pokeOptions }] = await Promise.all([import("../../client/poke.ts"), import("../connection.ts")]);
  await new Poker(pokeOptions(config.pokeUrl, config.token)).poke();
}

interface ReportOptions {
  source: ImportSource;
  dryRun: boolean;
  notes: readonly string[];
  json: boolean;
}

function report(screen: Screen, mover: Mover, { source, dryRun, notes, json }: ReportOptions): void {
  const queues = [...mover.queues.values()];
  const { moved, existing, invalid, limited, problems, schedules } = mover;
  const facts = { moved, existing, invalid, limitedPriorities: limited };
  if (json) {
    screen.json({ source: source.name, dryRun, ...facts, queues, schedules, problems, notes });
    return;
  }
  printTable(screen, queues, queueColumns(dryRun), `${source.name} has no waiting jobs.`);
  if (schedules.length > 0) {
    if (queues.length > 0) screen.print("");
    printTable(screen, schedules, scheduleColumns, "");
  }
  const movedSchedules = schedules.filter(({ problem }) => problem === null).length;
  const sum = (field: "running" | "kept") => queues.reduce((total, queue) => total + queue[field], 0);
  const lines = [
    `${dryRun ? "Would move" : "Moved"} ${formatPlural(moved, "job")}${schedules.length > 0 ? ` and ${formatPlural(movedSchedules, "schedule")}` : ""}.`,
    existing > 0 && `${formatCount(existing)} of them had been stored by an earlier run.`,
    sum("running") > 0 &&
      `${formatPlural(sum("running"), "running job stays", "running jobs stay")} in ${source.name}.`,
    sum("kept") > 0 &&
      `${formatPlural(sum("kept"), "job stays", "jobs stay")} in ${source.name}: ${source.keptReason}.`,
    limited > 0 && `${formatPlural(limited, "priority was", "priorities were")} limited to -1000 to 1000.`,
    invalid > 0 && `${formatPlural(invalid, "job")} cannot be stored: ${mover.describeProblems()}`,
    ...notes,
  ];
  for (const line of lines) if (line) screen.print(escapeLine(line));
}

function queueColumns(dryRun: boolean): readonly Column<MovedQueue>[] {
  return [
    { title: "QUEUE", value: ({ name }) => name, elastic: true },
    { title: "PIPELINE", value: ({ pipelines }) => pipelines.join(", "), elastic: true },
    { title: "READY", value: ({ ready }) => ready, right: true },
    { title: "DELAYED", value: ({ delayed }) => delayed, right: true },
    { title: dryRun ? "TO MOVE" : "MOVED", value: ({ moved }) => moved, right: true },
    { title: "INVALID", value: ({ invalid }) => invalid || "", right: true, colour: () => "red" },
    { title: "RUNNING", value: ({ running }) => running || "", right: true },
    { title: "KEPT", value: ({ kept }) => kept || "", right: true },
  ];
}

const scheduleColumns: readonly Column<MovedSchedule>[] = [
  { title: "SCHEDULE", value: ({ schedule }) => schedule, elastic: true },
  { title: "CRON", value: ({ cron }) => cron },
  { title: "QUEUE", value: ({ queue }) => queue, elastic: true },
  { title: "STAYS BECAUSE", value: ({ problem }) => problem, colour: () => "yellow", elastic: true },
];
