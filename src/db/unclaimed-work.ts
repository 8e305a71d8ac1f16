// Jobs that could be claimed, and nobody who would: what keeps them waiting, and what to do about it. The doctor says it.

/** A pool with jobs that could be claimed, and neither a worker nor a machine that is up or on its way. */
export interface Waiting {
  pool: string;
  machines: boolean;
  paused: boolean;
  budget: boolean;
  reason: string | null;
  trouble: string | null;
  remedy: string | null;
  wastedStarts: number;
  long: boolean;
}

/** What keeps its jobs from being done. Undefined where a person wants it so, or nothing is late. */
export function holding(one: Waiting): { found: string; remedy: string } | undefined {
  const { pool, machines, trouble, wastedStarts } = one;
  if (one.paused && !one.budget) return undefined;
  if (one.paused)
    return {
      found: `${pool} (${one.reason ?? "its budget is used up"})`,
      remedy: "Raise it with `stillwake budget`, or wait for the next day or month.",
    };
  if (trouble !== null)
    return {
      found: `${pool} (no machine can be started: ${trouble})`,
      remedy: one.remedy ? `${one.remedy.replace(/\.$/, "")}.` : "Mend what it says; it is tried again after a pause.",
    };
  // From three on the orchestrator makes a pause.
  if (wastedStarts >= 3)
    return {
      found: `${pool} (the last ${wastedStarts} machines were of no use)`,
      remedy:
        "`stillwake machines --ended` tells how they ended; once that is mended, `stillwake resume --pool <name>` ends the pause.",
    };
  if (!one.long) return undefined;
  if (!machines)
    return {
      found: `${pool} (no worker serves it)`,
      remedy:
        "Start one: `stillwake worker --pool <name>`; or give the pool machines under `pools` in stillwake.config.",
    };
  return {
    found: `${pool} (no machine was started)`,
    remedy:
      "Run `stillwake orchestrator`, or `stillwake server`, and let it hear of work: a poke at each enqueue (STILLWAKE_POKE_URL), or POST /v1/watchdog once a minute.",
  };
}
