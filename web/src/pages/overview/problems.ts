// The problems at the top of the overview, each with a link to its page. Pure: the formatters are passed in, and the
// page escapes the untrusted text.
import type { api } from "../../api/resources.ts";
import { startProblem } from "../../parts/machine-text.ts";

type Formatters = Pick<
  typeof import("@stillwake/ui/format.ts"),
  "formatCount" | "formatRelative" | "plural" | "formatDuration"
>;

export interface Problem {
  href: string;
  what: string;
  /** Complete sentences; may be empty. */
  why: string;
}

interface Sources {
  breakers: readonly Pick<api.Breaker, "name" | "state" | "reason" | "resumeAt">[];
  pools: readonly (Pick<api.Pool, "name" | "paused" | "claimable"> &
    Partial<Pick<api.Pool, "machines" | "providerError" | "wastedStarts" | "oldest">>)[];
  machines: readonly Pick<api.Machine, "pool">[];
  schedules: readonly Pick<api.Schedule, "name" | "lateMs" | "paused" | "lastError">[];
  endpoints: readonly Pick<api.Endpoint, "name" | "disabledAt" | "disabledReason">[];
  ended: api.Stats["ended"];
  /** The time range of `ended`, such as "the last hour". */
  timeRange: string;
}

/** A running worker or watchdog fires a schedule within a minute. */
const LATE_MS = 2 * 60_000;
/** Fewer ended jobs say nothing about the rate of failures. */
const MIN_ENDED = 5;

export function findProblems(sources: Sources, now: number, formatters: Formatters): Problem[] {
  return [
    ...poolProblems(sources, now, formatters),
    ...failureProblems(sources, formatters),
    ...breakerProblems(sources, now, formatters),
    ...scheduleProblems(sources, formatters),
    ...endpointProblems(sources),
  ];
}

/** The orchestrator requests a machine within this time. */
const MACHINE_REQUESTED_WITHIN_MS = 90_000;

function poolProblems({ pools, machines: workers }: Sources, now: number, formatters: Formatters): Problem[] {
  const { plural, formatRelative } = formatters;
  const served = new Set(workers.map(({ pool }) => pool));
  return pools.flatMap(
    ({ name, paused, claimable, machines = null, providerError = null, wastedStarts = 0, oldest = null }) => {
      const href = "/pools";
      const problem = startProblem({ name, machines, providerError, wastedStarts });
      if (paused) {
        const by = paused.by ? ` by ${paused.by}` : "";
        return [{ href, what: `Pool ${name} is paused${by}`, why: sentences(paused.reason) }];
      }
      if (problem) {
        const { what, why, until } = problem;
        const retry = until && Date.parse(until) > now ? `Next start ${formatRelative(until, now)}` : null;
        return [
          {
            href,
            what: `Pool ${name}: ${what.charAt(0).toLowerCase()}${what.slice(1)}`,
            why: sentences(why, retry),
          },
        ];
      }
      if (claimable === 0 || served.has(name)) return [];
      if (machines) {
        if (oldest === null || now - Date.parse(oldest) < MACHINE_REQUESTED_WITHIN_MS) return [];
        const what = `No machine was started for pool ${name}: ${plural(claimable, "job waits", "jobs wait")}`;
        return [{ href, what, why: "Is the orchestrator running? npx stillwake orchestrator" }];
      }
      const what = `No worker serves pool ${name}: ${plural(claimable, "job waits", "jobs wait")}`;
      return [{ href, what, why: `Start one: npx stillwake worker --pool ${name}` }];
    },
  );
}

function failureProblems({ ended, timeRange }: Sources, { formatCount, plural }: Formatters): Problem[] {
  const { completed, failed, cancelled } = ended;
  const total = completed + failed + cancelled;
  if (total < MIN_ENDED || failed * 2 < total) return [];
  const share = failed === total ? "All" : `${formatCount(failed)} of`;
  return [
    { href: "/jobs?state=failed", what: `${share} ${plural(total, "job")} that ended in ${timeRange} failed`, why: "" },
  ];
}

function breakerProblems({ breakers }: Sources, now: number, { formatRelative }: Formatters): Problem[] {
  return breakers
    .filter(({ state }) => state === "open")
    .map(({ name, reason, resumeAt }) => {
      const probe = resumeAt && Date.parse(resumeAt) > now ? `Next probe ${formatRelative(resumeAt, now)}` : null;
      return { href: "/limits", what: `Breaker ${name} is open`, why: sentences(reason, probe) };
    });
}

function scheduleProblems({ schedules }: Sources, { formatDuration }: Formatters): Problem[] {
  return schedules
    .filter(({ lateMs, paused, lastError }) => !paused && (lateMs >= LATE_MS || lastError !== null))
    .map(({ name, lateMs, lastError }) => {
      const status = lateMs >= LATE_MS ? `is ${formatDuration(lateMs)} late` : "failed";
      return { href: "/schedules", what: `Schedule ${name} ${status}`, why: sentences(lastError) };
    });
}

function endpointProblems({ endpoints }: Sources): Problem[] {
  return endpoints
    .filter(({ disabledAt }) => disabledAt !== null)
    .map(({ name, disabledReason }) => {
      return { href: "/webhooks", what: `Endpoint ${name} is disabled`, why: sentences(disabledReason) };
    });
}

function sentences(...parts: (string | null)[]): string {
  const texts = parts.filter((part): part is string => !!part?.trim()).map((part) => part.trim());
  return texts.map((text) => (/[.!?…]$/.test(text) ? text : `${text}.`)).join(" ");
}
