// A schedule's contract: which job is due when. Safe to import from a web bundle. What a cron means is decided in sql/functions/flow/cron.sql alone, so that
// psql and every language obey the same rules; here only what would be a slip of the pen is refused early.
import { InvalidInput } from "../errors.ts";
import type { Duration } from "../time.ts";
import { checkName } from "./limit.ts";
import type { Pipeline } from "./pipeline.ts";

/** A slot comes while the job of the last one is live. */
export type Overlap = "skip" | "queue" | "replace" | "allow";

/** Slots passed while nobody could look. */
export type CatchUp = "one" | "all" | "none";

export interface ScheduleOptions<Input = unknown, Output = Input> {
  /** Minute, hour, day of the month, month, day of the week: "30 2 * * mon-fri"; or @hourly, @daily, @weekly, @monthly, @yearly. */
  cron: string;
  /** A name of the IANA database such as "Europe/Berlin". Default "UTC". */
  zone?: string;
  pipeline: Pipeline<Input, Output> | string;
  /** Of every job. Default {}. Which slot a job is for it finds in `job.schedule`. */
  input?: Input;
  /** Default "skip". */
  overlap?: Overlap;
  /** Default "one": the latest of them, once. */
  catchUp?: CatchUp;
  /** What else its jobs are enqueued with. Key and tenant are by default what the contract makes of the input. */
  options?: ScheduledOptions;
}

export interface ScheduledOptions {
  priority?: number;
  pool?: string;
  attempts?: number;
  /** End the job as failed (EXPIRED) if no worker has started it by then. */
  expiresIn?: Duration;
  key?: string;
  tenant?: string;
  /** Who is told when a job ends: a URL, or an endpoint of `sw.webhooks`. */
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
  const refuse = (field: string, what: string, remedy: string): never => {
    throw new InvalidInput(`Schedule "${name}" ${what}`, { field, remedy });
  };
  refuseUnknown(options, "cron zone pipeline input overlap catchUp options".split(" "), refuse);
  const { cron, zone = "UTC", pipeline, overlap = "skip", catchUp = "one" } = options ?? {};
  if (typeof cron !== "string" || !/^\s*(@[a-z]+|\S+(\s+\S+){4})\s*$/i.test(cron)) {
    const remedy = 'Write minute, hour, day of the month, month, day of the week, such as "30 2 * * mon-fri"';
    refuse("cron", `cannot have the cron ${JSON.stringify(cron)}`, remedy);
  }
  if (typeof zone !== "string" || zone === "")
    refuse("zone", `cannot be in the zone ${JSON.stringify(zone)}`, 'Use a name such as "Europe/Berlin", or "UTC"');
  if (typeof pipeline !== "string" && typeof pipeline?.name !== "string")
    refuse("pipeline", "has no pipeline", 'Pass what pipeline("name", { … }) returned, or the name of one');
  if (!overlaps.includes(overlap))
    refuse("overlap", `cannot have overlap ${JSON.stringify(overlap)}`, `Use one of ${overlaps.join(", ")}`);
  if (!catchUps.includes(catchUp))
    refuse("catchUp", `cannot have catchUp ${JSON.stringify(catchUp)}`, `Use one of ${catchUps.join(", ")}`);
  if (options.options !== undefined)
    refuseUnknown(options.options, "priority pool attempts expiresIn key tenant webhook".split(" "), refuse);
  return Object.freeze({ kind: "schedule", name, options: Object.freeze({ ...options }) });
}

function refuseUnknown(given: object, known: string[], refuse: (field: string, what: string, remedy: string) => never) {
  const unknown = Object.keys(given ?? {}).find((key) => !known.includes(key));
  if (unknown) refuse(unknown, `has an unknown option "${unknown}"`, `Known options: ${known.join(", ")}`);
}
