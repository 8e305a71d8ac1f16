// One pool: its status in a sentence, its figures, its actions, and its machines and workers.

import { useAction, useSubmit } from "@stillwake/ui/api/query.ts";
import { RequestError } from "@stillwake/ui/api/request.ts";
import { escapeText, formatCount, plural } from "@stillwake/ui/format.ts";
import { Button } from "@stillwake/ui/parts/button.tsx";
import { Field, FormDialog, fieldError } from "@stillwake/ui/parts/form.tsx";
import { Panel } from "@stillwake/ui/parts/panel.tsx";
import { RelativeTime, useNow } from "@stillwake/ui/parts/time.tsx";
import { type ComponentProps, type ReactNode, useState } from "react";
import { Link } from "wouter";
import { usePermissions } from "../../api/permissions.ts";
import type { api } from "../../api/resources.ts";
import { Command } from "../../parts/copy.tsx";
import { ReasonForm } from "../../parts/form/reason-form.tsx";
import { type StartProblem, startProblem } from "../../parts/machine-text.ts";
import { parseCap } from "./cap.ts";
import { PoolCost } from "./cost.tsx";
import { MachineSquares } from "./machine-squares.tsx";
import { EndedMachines, MachineTable } from "./machines.tsx";

interface PoolProps {
  pool: api.Pool;
  /** Its machines and workers; undefined while they load. */
  machines: api.Machine[] | undefined;
  /** Machines that have ended. */
  ended?: readonly api.Machine[];
}

type PoolBudget = Pick<ComponentProps<typeof PoolCost>, "month" | "budget">;

const poolPath = (name: string, action: string) => `/v1/pools/${encodeURIComponent(name)}/${action}`;
const jobsUrl = (pool: string, state: string) => `/jobs?pool=${encodeURIComponent(pool)}&state=${state}`;

export function PoolPanel({ pool, machines, ended = [], month, budget }: PoolProps & PoolBudget) {
  const { manage } = usePermissions();
  const { name, claimable, running, concurrency, oldest, nextDue } = pool;
  return (
    <Panel
      title={<span className="untrusted">{escapeText(name)}</span>}
      actions={manage && <PoolActions pool={pool} />}
      bare
    >
      <PoolStatus pool={pool} machines={machines} />
      <dl className="figures">
        <Figure name="Ready">
          {claimable > 0 ? (
            <Link href={jobsUrl(name, "queued")}>{formatCount(claimable)}</Link>
          ) : (
            formatCount(claimable)
          )}
        </Figure>
        <Figure name="Running">
          {running > 0 ? <Link href={jobsUrl(name, "running")}>{formatCount(running)}</Link> : formatCount(running)}
        </Figure>
        <Figure name="Cap">{concurrency === null ? "none" : formatCount(concurrency)}</Figure>
        <Figure name="Oldest ready">
          <RelativeTime at={oldest} />
        </Figure>
        <Figure name="Next due">{claimable > 0 && pool.paused === null ? "now" : <RelativeTime at={nextDue} />}</Figure>
      </dl>
      {pool.machines && machines && <MachineSquares settings={pool.machines} machines={machines} />}
      {pool.machines && <PoolCost machines={pool.machines} month={month} budget={budget} />}
      {machines && machines.length > 0 ? (
        <MachineTable machines={machines} />
      ) : (
        <p className="no-machine soft small">{machines ? noMachineText(pool) : "Loading…"}</p>
      )}
      <EndedMachines ended={ended} important={pool.wastedStarts > 0} />
    </Panel>
  );
}

function noMachineText({ machines, claimable }: api.Pool): string {
  if (machines === null) return "No worker is connected. Idle workers disconnect and are not listed.";
  return claimable > 0 ? "No machine is running yet." : "No machine is running. Machines start when there are jobs.";
}

function Figure({ name, children }: { name: string; children: ReactNode }) {
  return (
    <div>
      <dt>{name}</dt>
      <dd className="number">{children}</dd>
    </div>
  );
}

/** An idle worker needs this time to claim a new job. */
const CLAIMED_WITHIN_MS = 5_000;

function PoolStatus({ pool, machines }: PoolProps) {
  const now = useNow();
  const { name, paused, claimable, running, concurrency, oldest, nextDue } = pool;
  const waiting = claimable === 1 ? "1 job waits" : `${formatCount(claimable)} jobs wait`;
  if (paused) {
    return (
      <div className="pool-status" data-tone="amber">
        <strong>
          Paused{paused.by !== null && <span className="untrusted"> by {escapeText(paused.by)}</span>}{" "}
          <RelativeTime at={paused.at} />
        </strong>
        {paused.reason !== null && <span className="untrusted">{escapeText(paused.reason)}</span>}
        <span>{claimable > 0 ? `${waiting} until it is resumed.` : "No job is started."} Running jobs continue.</span>
      </div>
    );
  }
  const problem = startProblem(pool);
  if (problem) return <MachineProblem problem={problem} waiting={claimable > 0 ? waiting : undefined} />;
  const lateMs = oldest === null ? 0 : now - Date.parse(oldest);
  const hasNoWorker = machines?.length === 0 && lateMs > CLAIMED_WITHIN_MS;
  if (claimable > 0 && pool.machines) {
    return <MachineDemand pool={pool} machines={pool.machines} waiting={waiting} lateMs={lateMs} />;
  }
  if (claimable > 0 && hasNoWorker) {
    return (
      <div className="pool-status" data-tone="amber">
        <strong>No worker serves this pool: {waiting}</strong>
        <Command>{`npx stillwake worker --pool ${name}`}</Command>
      </div>
    );
  }
  if (claimable > 0 && concurrency !== null && running >= concurrency) {
    return (
      <div className="pool-status" data-tone="amber">
        <strong>The pool has reached its cap of {formatCount(concurrency)}</strong> {plural(running, "job")} running;{" "}
        {waiting}.
      </div>
    );
  }
  if (claimable > 0) return <div className="pool-status">{waiting} for a free slot</div>;
  if (running > 0) {
    const many = machines?.length ?? 0;
    const on = many > 0 && ` on ${plural(many, pool.machines ? "machine" : "worker")}`;
    return (
      <div className="pool-status">
        {plural(running, "job")} running{on}; no job waits
      </div>
    );
  }
  const later = nextDue !== null && Date.parse(nextDue) > now;
  return (
    <div className="pool-status">
      {later ? (
        <>
          No jobs; the next is due <RelativeTime at={nextDue} />
        </>
      ) : (
        "No jobs"
      )}
    </div>
  );
}

function MachineProblem({ problem, waiting }: { problem: StartProblem; waiting: string | undefined }) {
  const now = useNow();
  const { tone, what, why, until } = problem;
  return (
    <div className="pool-status" data-tone={tone}>
      <strong>
        {what}
        {waiting && `: ${waiting}`}
      </strong>
      <span className="untrusted">{escapeText(why)}</span>
      {until !== null && Date.parse(until) > now && (
        <span className="soft">
          Next start <RelativeTime at={until} />
        </span>
      )}
    </div>
  );
}

/** A poked orchestrator needs seconds. If the poke was lost, the watchdog wakes it within a minute. */
const STARTS_WITHIN_MS = 90_000;

/** The number of machines that the orchestrator wants, and why it does not start more. */
function MachineDemand({
  pool: { wanted, concurrency, running },
  machines: { now: current, max, starting },
  waiting,
  lateMs,
}: {
  pool: api.Pool;
  machines: NonNullable<api.Pool["machines"]>;
  waiting: string;
  lateMs: number;
}) {
  if (current === 0 && lateMs > STARTS_WITHIN_MS) {
    return (
      <div className="pool-status" data-tone="amber">
        <strong>No machine was started: {waiting}</strong>
        <span>Is the orchestrator running?</span>
        <Command>npx stillwake orchestrator</Command>
      </div>
    );
  }
  const isFull = current >= max && starting === 0;
  const isCapped = concurrency !== null && running >= concurrency;
  const startingText = starting > 0 && `; ${formatCount(starting)} starting`;
  return (
    <div className="pool-status" data-tone={isFull ? "amber" : undefined}>
      <span>
        {formatCount(current)} of {plural(wanted ?? 0, "wanted machine")}: {waiting}
        {startingText}
        {isFull && `; the pool is at its maximum of ${plural(max, "machine")}`}
        {isCapped && `; the cap of ${plural(concurrency, "job")} is reached`}
      </span>
    </div>
  );
}

function PoolActions({ pool }: { pool: api.Pool }) {
  const { run, busy } = useAction();
  const [open, setOpen] = useState<"pause" | "cap">();
  const { name, paused } = pool;
  return (
    <>
      <Button onClick={() => setOpen("cap")}>Cap…</Button>
      {paused ? (
        <Button
          disabled={busy}
          onClick={() => run({ path: poolPath(name, "resume"), done: `Pool ${name} is resumed` })}
        >
          Resume
        </Button>
      ) : (
        <>
          {startProblem(pool) && (
            <Button
              disabled={busy}
              onClick={() => run({ path: poolPath(name, "resume"), done: "A machine start is requested" })}
            >
              Retry
            </Button>
          )}
          <Button onClick={() => setOpen("pause")}>Pause…</Button>
        </>
      )}
      {open === "pause" && (
        <ReasonForm
          title={`Pause pool ${escapeText(pool.name)}`}
          submitLabel="Pause"
          text="No job is started until the pool is resumed. Running jobs continue."
          help="Shown on the pages of waiting jobs."
          action={{ path: poolPath(pool.name, "pause"), done: `Pool ${pool.name} is paused` }}
          onClose={() => setOpen(undefined)}
        />
      )}
      {open === "cap" && <CapForm pool={pool} onClose={() => setOpen(undefined)} />}
    </>
  );
}

const invalidCap = new RequestError({
  code: "INVALID_INPUT",
  status: 400,
  detail: "A cap must be a whole number of at least 1",
  remedy: "Leave it empty for no cap. To start no jobs, pause the pool.",
  field: "concurrency",
});

function CapForm({ pool: { name, concurrency }, onClose }: { pool: api.Pool; onClose: () => void }) {
  const { submit, setError, ...form } = useSubmit();
  async function save(data: FormData): Promise<void> {
    const cap = parseCap(String(data.get("concurrency")));
    if (cap === undefined) return setError(invalidCap);
    const done = cap === null ? `Pool ${name} has no cap` : `Pool ${name} runs at most ${plural(cap, "job")}`;
    if (await submit({ path: poolPath(name, "cap"), body: { concurrency: cap }, done })) onClose();
  }
  return (
    <FormDialog
      title={`Cap of pool ${escapeText(name)}`}
      submitLabel="Set cap"
      form={form}
      fields={["concurrency"]}
      onSubmit={save}
      onClose={onClose}
    >
      <Field
        name="concurrency"
        label="Concurrent jobs on all workers"
        help="Empty: no cap. Running jobs are not stopped."
        error={fieldError(form.error, "concurrency")}
      >
        {(props) => (
          // Not type="number": it submits an empty value for invalid input, which would remove the cap.
          <input {...props} inputMode="numeric" autoComplete="off" maxLength={20} defaultValue={concurrency ?? ""} />
        )}
      </Field>
    </FormDialog>
  );
}
