// What must hold after the soak, read from the database and from the observer.
import type { StepObserver } from "../support/processes/step-observer.ts";
import type { SoakDatabase } from "./database.ts";
import type { SoakWorkers } from "./workers.ts";

interface AuditOptions {
  database: SoakDatabase;
  observer: StepObserver;
  workers: SoakWorkers;
  enqueued: string[];
  timeline: InjectedFault[];
  leaseMs: number;
}

/** Times of Date.now(). */
export interface InjectedFault {
  name: string;
  from: number;
  until: number;
}

interface Audit {
  /** What does not hold, by name, with examples. Empty when all is well. */
  findings: Record<string, unknown[]>;
  figures: Record<string, number>;
}

const EXAMPLES = 5;

export async function audit({
  database,
  observer,
  workers,
  enqueued,
  timeline,
  leaseMs,
}: AuditOptions): Promise<Audit> {
  const findings: Record<string, unknown[]> = {};
  const report = (name: string, rows: unknown[]) => {
    if (rows.length > 0) findings[`${name}: ${rows.length}`] = rows.slice(0, EXAMPLES);
  };

  report(
    "lost: acknowledged jobs that do not exist",
    await database.query(
      "select id from unnest($1::uuid[]) e (id) where not exists (select from stillwake.jobs j where j.id = e.id)",
      [enqueued],
    ),
  );
  report(
    "stuck: jobs that did not end",
    await database.query("select id, state, run_at, crashes from stillwake.live_jobs"),
  );
  report(
    "failed: jobs that did not complete",
    await database.query("select id, state, failure from stillwake.ended_jobs where state <> 'completed'"),
  );
  report(
    "doubled: rows of transactions",
    await database.query("select job, step, count(*)::int from soak_effects group by 1, 2 having count(*) > 1"),
  );
  report(
    "doubled: a transaction without its checkpoint",
    await database.query(
      `select job, step from soak_effects e
      where not exists (select from stillwake.checkpoints c where c.job_id = e.job and c.step = e.step)`,
    ),
  );
  report("doubled: steps that ran after their checkpoint", await stepsAfterCheckpoint(database, observer));
  report(
    "lost: lines of kept steps",
    await database.query(
      `select c.job_id, c.step, c.epoch from stillwake.checkpoints c
      where c.step !~ ' event$' and not exists (select from stillwake.logs l
        where l.job_id = c.job_id and l.step = c.step and l.epoch = c.epoch and l.message = c.step || ' ends')`,
    ),
  );
  report(
    "lost: numbers of the feed",
    await database.query("select job_id from stillwake.feed group by 1 having count(*) <> max(seq)"),
  );

  const lost = await database.query<Lost>(
    `select job_id, worker, epoch, claimed_at, ended_at, failure ->> 'code' as code
    from stillwake.attempts where outcome = 'lost'`,
  );
  const isJustified = ({ worker, claimed_at, ended_at, code }: Lost) =>
    code === "RUNNER_OOM" ||
    workers.harms.some(
      (harm) => harm.worker === worker && harm.from < ended_at.getTime() + leaseMs && harm.until > claimed_at.getTime(),
    );
  report(
    "charged wrongly: crashes of workers that nothing was done to",
    lost
      .filter((attempt) => !isJustified(attempt))
      .map((attempt) => ({
        ...attempt,
        during: timeline
          .filter(({ from, until }) => from < attempt.ended_at.getTime() && until > attempt.claimed_at.getTime())
          .map(({ name }) => name),
      })),
  );

  const [counts] = await database.query<{ jobs: number; attempts: number; checkpoints: number; lines: number }>(
    `select (select count(*) from stillwake.ended_jobs)::int as jobs, (select count(*) from stillwake.attempts)::int as attempts,
      (select count(*) from stillwake.checkpoints)::int as checkpoints, (select count(*) from stillwake.logs)::int as lines`,
  );
  return {
    findings,
    figures: { ...counts!, enqueued: enqueued.length, lostAttempts: lost.length, effects: observer.reports.length },
  };
}

interface Lost {
  job_id: string;
  worker: string;
  epoch: string;
  claimed_at: Date;
  ended_at: Date;
  code: string | null;
}

/** A kept step has a checkpoint; its effect at a later epoch means that it ran again. */
async function stepsAfterCheckpoint(database: SoakDatabase, observer: StepObserver): Promise<unknown[]> {
  const rows = await database.query<{ job_id: string; step: string; epoch: string }>(
    "select job_id, step, epoch from stillwake.checkpoints",
  );
  const keptAt = new Map(rows.map(({ job_id, step, epoch }) => [`${job_id} ${step}`, BigInt(epoch)]));
  return observer.reports.filter(({ job, step, epoch }) => {
    const kept = keptAt.get(`${job} ${step}`);
    return kept !== undefined && BigInt(epoch) > kept;
  });
}
