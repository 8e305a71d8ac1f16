// `sw.schedules`: set, list, pause, resume and remove schedules. The rules are in sql/functions/flow/schedules.sql.
import { checkName } from "../contract/limit.ts";
import { type Pipeline, validateInput } from "../contract/pipeline.ts";
import type { Schedule } from "../contract/schedule.ts";
import {
  controlSchedule,
  type Occurrence,
  readSchedules,
  readUpcoming,
  removeSchedule,
  type ScheduleState,
  setSchedule,
} from "../db/calls/schedules.ts";
import type { Database } from "../db/database.ts";
import { InvalidInput } from "../errors.ts";
import { toJson } from "../payload.ts";
import { type KeyRing, sealInput } from "../secrets/seal.ts";
import { resolveLabels, toSqlOptions } from "./enqueue-options.ts";
import { checkLimit } from "./pagination.ts";

export type { Occurrence, ScheduleState } from "../db/calls/schedules.ts";

export class Schedules {
  readonly #database: Database;
  readonly #register: (pipeline: Pipeline) => Promise<void>;
  readonly #keyRing: KeyRing | undefined;
  readonly #onChange: () => Promise<void>;

  constructor(
    database: Database,
    register: (pipeline: Pipeline) => Promise<void>,
    keyRing?: KeyRing,
    onChange: () => Promise<void> = async () => {},
  ) {
    this.#database = database;
    this.#register = register;
    this.#keyRing = keyRing;
    this.#onChange = onChange;
  }

  /**
   * Creates or changes a schedule; returns whether anything changed. Setting the same definition again changes nothing,
   * so every process may call it at start. A new cron or zone starts with its first occurrence from now.
   */
  // biome-ignore lint/suspicious/noExplicitAny: schedules of any input type.
  async set(schedule: Schedule<any, any>): Promise<boolean> {
    const settings = await toSettings(schedule, this.#keyRing);
    const { pipeline } = schedule.options;
    if (typeof pipeline !== "string") await this.#register(pipeline);
    const changed = await setSchedule(this.#database, schedule.name, settings);
    // An orchestrator that sleeps until the next due time must learn of an earlier one.
    if (changed) await this.#onChange();
    return changed;
  }

  async list(): Promise<ScheduleState[]> {
    return readSchedules(this.#database);
  }

  /** Fires no occurrence until it is resumed. */
  async pause(name: string, actor: { by?: string } = {}): Promise<void> {
    await controlSchedule(this.#database, "pause_schedule", [name, actor.by ?? null]);
  }

  /** Continues with the first occurrence from now; occurrences that passed during the pause are not caught up. */
  async resume(name: string): Promise<void> {
    await controlSchedule(this.#database, "resume_schedule", [name]);
    await this.#onChange();
  }

  /** Its jobs remain. Returns false if the schedule does not exist. */
  async remove(name: string): Promise<boolean> {
    return removeSchedule(this.#database, name);
  }

  /** The next occurrences of a stored schedule (by name), or of a schedule that is not stored. */
  // biome-ignore lint/suspicious/noExplicitAny: schedules of any input type.
  async upcoming(schedule: string | Schedule<any, any>, count = 10): Promise<Occurrence[]> {
    checkLimit(count, 10_000);
    if (typeof schedule === "string") return readUpcoming(this.#database, schedule, count);
    const { cron, zone = "UTC" } = checkSchedule(schedule);
    return readUpcoming(this.#database, { cron, zone }, count);
  }
}

/** The JSON that `stillwake.set_schedule` takes. */
// biome-ignore lint/suspicious/noExplicitAny: schedules of any input type.
async function toSettings(schedule: Schedule<any, any>, keyRing: KeyRing | undefined): Promise<string> {
  const { cron, zone, pipeline, input = {}, overlap, catchUp, options = {} } = checkSchedule(schedule);
  checkName(schedule.name, "schedule");
  const value = typeof pipeline === "string" ? input : await validateInput(pipeline, input);
  const { key, tenant } = resolveLabels(pipeline, value, options, "input");
  const labels = { ...(key !== null && { key }), ...(tenant !== null && { tenant }) };
  const settings = {
    cron,
    zone,
    pipeline: typeof pipeline === "string" ? pipeline : pipeline.name,
    overlap,
    catch_up: catchUp,
    options: { ...toSqlOptions(options), ...labels },
  };
  // The jobs do not exist yet, so the sealed values are bound to the pipeline.
  const { sealed = [] } = typeof pipeline === "string" ? {} : pipeline.options;
  const owner = { pipeline: settings.pipeline, tenant, job: null };
  const stored =
    sealed.length > 0 ? sealInput(keyRing, sealed, JSON.parse(toJson(value, "input")), owner, [key, tenant]) : value;
  return `${JSON.stringify(settings).slice(0, -1)},"input":${toJson(stored, "input")}}`;
}

// biome-ignore lint/suspicious/noExplicitAny: schedules of any input type.
function checkSchedule(schedule: Schedule<any, any>): Schedule<any, any>["options"] {
  if (schedule?.kind === "schedule" && schedule.options) return schedule.options;
  throw new InvalidInput("The argument is not a schedule", {
    field: "schedule",
    remedy: 'Pass the result of schedule("name", { … })',
  });
}
