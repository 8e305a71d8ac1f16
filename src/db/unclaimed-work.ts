// Why jobs of a pool are not claimed, and the remedy. The doctor reports it.

/** A pool with claimable jobs that has neither a worker nor a machine that is up or starting. */
export interface UnclaimedPool {
  pool: string;
  machines: boolean;
  paused: boolean;
  /** Paused because its budget is used up, until the next period. */
  budgetPause: boolean;
  reason: string | null;
  providerError: string | null;
  remedy: string | null;
  wastedStarts: number;
  /** Its oldest job has been waiting for more than a minute. */
  overdue: boolean;
}

/** Undefined when an operator paused the pool, or its jobs have not been waiting for long. */
export function explainUnclaimed(state: UnclaimedPool): { found: string; remedy: string } | undefined {
  const { pool, machines, paused, budgetPause, reason, providerError, remedy, wastedStarts, overdue } = state;
  if (paused && !budgetPause) return undefined;
  if (paused)
    return {
      found: `${pool} (${reason ?? "its budget is used up"})`,
      remedy: "Raise it with `stillwake budget`, or wait for the next day or month.",
    };
  if (providerError !== null)
    return {
      found: `${pool} (no machine can be started: ${providerError})`,
      remedy: remedy ? `${remedy.replace(/\.$/, "")}.` : "Fix the cause named above; starts are retried after a pause.",
    };
  // From the third on the orchestrator pauses between starts.
  if (wastedStarts >= 3)
    return {
      found: `${pool} (the last ${wastedStarts} machines ended without doing a job)`,
      remedy:
        "`stillwake machines --ended` shows how they ended; once that is fixed, `stillwake resume --pool <name>` starts machines again.",
    };
  if (!overdue) return undefined;
  if (!machines)
    return {
      found: `${pool} (no worker serves it)`,
      remedy:
        "Start one: `stillwake worker --pool <name>`; or give the pool machines under `pools` in stillwake.config.",
    };
  return {
    found: `${pool} (no machine was started)`,
    remedy:
      "Run `stillwake orchestrator` or `stillwake server`, and notify it of work: a poke at each enqueue (STILLWAKE_POKE_URL), or POST /v1/watchdog once a minute.",
  };
}
