// Schedules as people and programs see and steer them: `sw.schedules`. The rules are in sql/functions/flow/schedules.sql.

import { checkName } from "../contract/limit.ts";
import { type Pipeline, validateInput } from "../contract/pipeline.ts";
import type { CatchUp, Overlap, Schedule } from "../contract/schedule.ts";
import { controlSchedule, readSchedules, readUpcoming, removeSchedule, setSchedule } from "../db/calls/schedules.ts";
import type { Database } from "../db/database.ts";
import { InvalidInput } from "../errors.ts";
import { toJson } from "../payload.ts";
import { type KeyRing, sealInput } from "../secrets/seal.ts";
import { labelsOf, sqlOptions } from "./enqueue-options.ts";
import { checkLimit } from "./pagination.ts";

export interface Slot {
  /** The local time, such as "2030-03-31T02:30"; with its offset where every hour is named. */
  slot: string;
  at: Date;
}

/** Where a schedule stands. Times are the database's. */
export interface ScheduleState {
  name: string;
  cron: string;
  zone: string;
  pipeline: string;
  input: unknown;
  overlap: Overlap;
  catchUp: CatchUp;
  /** The slot that nobody has seen to yet. */
  next: Slot | null;
  /** How long ago it should have been seen to. More than a minute: no worker of its pool is awake and nobody calls the watchdog. */
  lateMs: number;
  /** The last slot that became a job. */
  last: (Slot & { job: string }) | null;
  /** Why the next slot could not become a job; it is tried again every minute. */
  lastError: string | null;
  fired: number;
  /** Slots without a job because the one before was still live. */
  skipped: number;
  /** Slots that passed while nobody looked and were not made up for. */
  missed: number;
  paused: { at: Date; by: string | null } | null;
}

export class Schedules {
  readonly #database: Database;
  readonly #register: (pipeline: Pipeline) => Promise<void>;
  readonly #ring: KeyRing | undefined;
  readonly #onChange: () => Promise<void>;

  constructor(
    database: Database,
    register: (pipeline: Pipeline) => Promise<void>,
    ring?: KeyRing,
    onChange: () => Promise<void> = async () => {},
  ) {
    this.#database = database;
    this.#register = register;
    this.#ring = ring;
    this.#onChange = onChange;
  }

  /**
   * Makes a schedule known or changes it; answers whether anything changed. The same definition again changes nothing, so every process may say it
   * when it starts. A new cron or zone begins with its first slot from now.
   */
  // biome-ignore lint/suspicious/noExplicitAny: a schedule of whatever input.
  async set(schedule: Schedule<any, any>): Promise<boolean> {
    const settings = await settingsOf(schedule, this.#ring);
    const { pipeline } = schedule.options;
    if (typeof pipeline !== "string") await this.#register(pipeline);
    const changed = await setSchedule(this.#database, schedule.name, settings);
    // Whoever sleeps until something is due must hear of an earlier time.
    if (changed) await this.#onChange();
    return changed;
  }

  async list(): Promise<ScheduleState[]> {
    const rows = await readSchedules(this.#database);
    return rows.map((row) => ({
      name: row.name,
      cron: row.cron,
      zone: row.zone,
      pipeline: row.pipeline,
      input: row.input,
      overlap: row.overlap as Overlap,
      catchUp: row.catch_up as CatchUp,
      next: row.next_at && row.paused_at === null ? { slot: row.next_slot!, at: row.next_at } : null,
      lateMs: Math.round(Number(row.late_ms)),
      last: row.last_at && { slot: row.last_slot!, at: row.last_at, job: row.last_job! },
      lastError: row.last_error,
      fired: Number(row.fired),
      skipped: Number(row.skipped),
      missed: Number(row.missed),
      paused: row.paused_at && { at: row.paused_at, by: row.paused_by },
    }));
  }

  /** No slot runs until it is resumed. */
  async pause(name: string, actor: { by?: string } = {}): Promise<void> {
    await controlSchedule(this.#database, "pause_schedule", [name, actor.by ?? null]);
  }

  /** Goes on with the first slot from now: what was paused is not made up for. */
  async resume(name: string): Promise<void> {
    await controlSchedule(this.#database, "resume_schedule", [name]);
    await this.#onChange();
  }

  /** Its jobs stay. Answers false when there is no such schedule. */
  async remove(name: string): Promise<boolean> {
    return removeSchedule(this.#database, name);
  }

  /** The next slots: of one that the database has, by its name, or of any you have written, without storing it. */
  // biome-ignore lint/suspicious/noExplicitAny: a schedule of whatever input.
  async upcoming(schedule: string | Schedule<any, any>, count = 10): Promise<Slot[]> {
    checkLimit(count, 10_000);
    if (typeof schedule === "string") return readUpcoming(this.#database, schedule, count);
    const { cron, zone = "UTC" } = optionsOf(schedule);
    return readUpcoming(this.#database, { cron, zone }, count);
  }
}

/** As `stillwake.set_schedule` takes them, in JSON. */
// biome-ignore lint/suspicious/noExplicitAny: a schedule of whatever input.
async function settingsOf(schedule: Schedule<any, any>, ring: KeyRing | undefined): Promise<string> {
  const { cron, zone, pipeline, input = {}, overlap, catchUp, options = {} } = optionsOf(schedule);
  checkName(schedule.name, "schedule");
  const value = typeof pipeline === "string" ? input : await validateInput(pipeline, input);
  const { key, tenant } = labelsOf(pipeline, value, options, "input");
  const labels = { ...(key !== null && { key }), ...(tenant !== null && { tenant }) };
  const settings = {
    cron,
    zone,
    pipeline: typeof pipeline === "string" ? pipeline : pipeline.name,
    overlap,
    catch_up: catchUp,
    options: { ...sqlOptions(options), ...labels },
  };
  // Its jobs do not exist yet, so that it is bound to the pipeline.
  const { sealed = [] } = typeof pipeline === "string" ? {} : pipeline.options;
  const owner = { pipeline: settings.pipeline, tenant, job: null };
  const stored =
    sealed.length > 0 ? sealInput(ring, sealed, JSON.parse(toJson(value, "input")), owner, [key, tenant]) : value;
  return `${JSON.stringify(settings).slice(0, -1)},"input":${toJson(stored, "input")}}`;
}

// biome-ignore lint/suspicious/noExplicitAny: a schedule of whatever input.
function optionsOf(schedule: Schedule<any, any>): Schedule<any, any>["options"] {
  if (schedule?.kind === "schedule" && schedule.options) return schedule.options;
  throw new InvalidInput("That is not a schedule", {
    field: "schedule",
    remedy: 'Pass what schedule("name", { … }) returned',
  });
}
