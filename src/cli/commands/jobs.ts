// stillwake jobs: which jobs there are.
import { InvalidInput } from "../../errors.ts";
import { checkOneOf, jobStates } from "../checks.ts";
import type { Call } from "../command.ts";
import { numberOf } from "../json-word.ts";
import { colourOfState, failureText, reasonOf } from "../output/follow.ts";
import { ago, between, momentOf } from "../output/moments.ts";
import { type Column, printTable } from "../output/table.ts";

const MAX_PAGE = 200;

export async function jobsCommand({ flags, door, screen }: Call): Promise<number> {
  const { pipeline, pool, state, key, tenant, text } = flags;
  checkOneOf(state, jobStates, "state");
  const [since, until] = [momentOf(flags.since, "since"), momentOf(flags.until, "until")];
  const limit = numberOf(flags.limit, "limit") ?? (flags.all ? Number.POSITIVE_INFINITY : 50);
  if (limit < 1) throw new InvalidInput("--limit is less than 1", { field: "limit", remedy: "Write --limit 10" });
  const api = await door();
  const jobs: ListedJob[] = [];
  let cursor: string | null | undefined = flags.cursor;
  do {
    const query = { pipeline, pool, state, key, tenant, text, since, until, cursor: cursor ?? undefined };
    const page: { jobs: ListedJob[]; cursor: string | null } = await api.call("GET", "/v1/jobs", {
      query: { ...query, limit: Math.min(MAX_PAGE, limit - jobs.length) },
    });
    jobs.push(...page.jobs);
    cursor = page.cursor;
    // A page may be short although there is more; without --all one look is enough, unless it found nothing at all.
  } while (cursor !== null && jobs.length < limit && (flags.all || limit > MAX_PAGE || jobs.length === 0));
  if (flags.json) {
    screen.json({ jobs, cursor });
    return 0;
  }
  printTable(screen, jobs, columns, "There are no such jobs.");
  if (cursor !== null) screen.say(`There are more: --all, or --cursor ${cursor}`);
  return 0;
}

interface ListedJob {
  id: string;
  pipeline: string;
  pool: string;
  state: string;
  waitingFor: string | null;
  attempt: number;
  maxAttempts: number;
  createdAt: string;
  startedAt: string | null;
  endedAt: string | null;
  key: string | null;
  tenant: string | null;
  failure: { sentence?: string; message?: string; code?: string } | null;
  progress: { fraction?: number; done?: number; total?: number; sentence?: string } | null;
  pause: { reason?: string } | null;
}

const columns: readonly Column<ListedJob>[] = [
  { title: "JOB", of: ({ id }) => id },
  { title: "PIPELINE", of: ({ pipeline }) => pipeline, elastic: true },
  { title: "STATE", of: ({ state }) => state, colour: ({ state }) => colourOfState[state] },
  { title: "ATTEMPT", of: ({ attempt, maxAttempts }) => `${attempt}/${maxAttempts}`, right: true, spare: true },
  { title: "CREATED", of: ({ createdAt }) => ago(createdAt), right: true },
  { title: "TOOK", of: ({ startedAt, endedAt }) => between(startedAt, endedAt), right: true, spare: true },
  { title: "KEY", of: ({ key }) => key, elastic: true, spare: true },
  { title: "TENANT", of: ({ tenant }) => tenant, elastic: true, spare: true },
  { title: "NOTE", of: noteOf, elastic: true },
];

/** What there is to say about where it stands. */
function noteOf({ state, waitingFor, failure, progress, pause }: ListedJob): string {
  if (failure && (state === "failed" || waitingFor === "retry")) return failureText(failure);
  if (state === "queued") return `waits for ${reasonOf(waitingFor)}`;
  if (state === "paused") return pause?.reason ?? "";
  if (state !== "running" || !progress) return "";
  const { fraction, done, total, sentence } = progress;
  const part = fraction ?? (done !== undefined && total ? done / total : undefined);
  return [part === undefined ? "" : `${Math.floor(part * 100)}%`, sentence].filter(Boolean).join(" ");
}
