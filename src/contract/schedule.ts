// The contract of a schedule. Part of `stillwake/contract`. sql/functions/flow/cron.sql alone interprets a cron
// expression, so that every client follows the same rules; this file only rejects obvious mistakes early.
import { InvalidInput } from "../errors.ts";
import type { Duration } from "../time.ts";
import { rejectUnknownOptions } from "../validate.ts";
import { checkName } from "./limit.ts";
import type { Pipeline } from "./pipeline.ts";

/** What happens to an occurrence that is due while the job of the previous occurrence is still live. */
export type Overlap = "skip" | "queue" | "replace" | "allow";

/** What happens to occurrences that passed while no worker or watchdog was running. */
export type CatchUp = "one" | "all" | "none";

export interface ScheduleOptions<Input = unknown, Output = Input> {
  /**
   * Minute, hour, day of the month, month, day of the week, such as "30 2 * * mon-fri"; or @hourly, @daily, @weekly,
   * @monthly, @yearly.
   */
  cron: string;
  /** IANA time zone such as "Europe/Berlin". Default "UTC". */
  zone?: string;
  pipeline: Pipeline<Input, Output> | string;
  /** Input of every job. Default {}. The job reads its occurrence from `job.schedule`. */
  input?: Input;
  /** Default "skip". */
  overlap?: Overlap;
  /** Default "one": the latest missed occurrence, once. */
  catchUp?: CatchUp;
  /** Enqueue options of its jobs. Default for key and tenant: computed from the input by the pipeline's contract. */
  options?: ScheduledOptions;
}

export interface ScheduledOptions {
  priority?: number;
  pool?: string;
  attempts?: number;
  /** Fail the job (EXPIRED) if no worker has started it by then. */
  expiresIn?: Duration;
  key?: string;
  tenant?: string;
  /** Receives a webhook when a job ends: a URL, or an endpoint of `sw.webhooks`. */
  webhook?: string | { endpoint?: string; url?: string };
}

export interface Schedule<Input = unknown, Output = Input> {
  readonly kind: "schedule";
  readonly name: string;
  readonly options: Readonly<ScheduleOptions<Input, Output>>;
}

const overlaps: readonly Overlap[] = ["skip", "queue", "replace", "allow"];
const catchUps: readonly CatchUp[] = ["one", "all", "none"];

export function schedule<Input = unknown, Output = Input>(
  name: string,
  options: ScheduleOptions<Input, Output>,
): Schedule<Input, Output> {
  checkName(name, "schedule");
  const owner = `Schedule "${name}"`;
  const reject = (field: string, problem: string, remedy: string): never => {
    throw new InvalidInput(`${owner} ${problem}`, { field, remedy });
  };
  rejectUnknownOptions(options, "cron zone pipeline input overlap catchUp options".split(" "), owner);
  const { cron, zone = "UTC", pipeline, overlap = "skip", catchUp = "one" } = options ?? {};
  if (typeof cron !== "string" || !/^\s*(@[a-z]+|\S+(\s+\S+){4})\s*$/i.test(cron)) {
    const remedy = 'Write minute, hour, day of the month, month, day of the week, such as "30 2 * * mon-fri"';
    reject("cron", `cannot have cron ${JSON.stringify(cron)}`, remedy);
  }
  if (typeof zone !== "string" || zone === "")
    reject("zone", `cannot have zone ${JSON.stringify(zone)}`, 'Use a name such as "Europe/Berlin", or "UTC"');
  if (typeof pipeline !== "string" && typeof pipeline?.name !== "string")
    reject("pipeline", "has no pipeline", 'Pass the result of pipeline("name", { … }), or the name of a pipeline');
  if (!overlaps.includes(overlap))
    reject("overlap", `cannot have overlap ${JSON.stringify(overlap)}`, `Use one of ${overlaps.join(", ")}`);
  if (!catchUps.includes(catchUp))
    reject("catchUp", `cannot have catchUp ${JSON.stringify(catchUp)}`, `Use one of ${catchUps.join(", ")}`);
  rejectUnknownOptions(options.options, "priority pool attempts expiresIn key tenant webhook".split(" "), owner);
  return Object.freeze({ kind: "schedule", name, options: Object.freeze({ ...options }) });
}
