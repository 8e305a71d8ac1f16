// One pool: a sentence on what it is doing, its numbers, what can be done about it, and its machines and workers.
import { type ComponentProps, type ReactNode, useState } from "react";
import { Link } from "wouter";
import { useAct, useSubmit } from "../../api/ask.ts";
import { Refused } from "../../api/call.ts";
import type { nouns } from "../../api/nouns.ts";
import { useMay } from "../../api/who.ts";
import { Button } from "../../parts/button.tsx";
import { Command } from "../../parts/copy.tsx";
import { Field, FormDialog, wrongAt } from "../../parts/form/form.tsx";
import { type Held, heldBack } from "../../parts/machine-words.ts";
import { Moment, useNow } from "../../parts/moment.tsx";
import { Panel } from "../../parts/panel.tsx";
import { count, inert, several } from "../../parts/words.ts";
import { readCap } from "./cap.ts";
import { PoolCost } from "./cost.tsx";
import { EndedMachines, MachineTable } from "./machines.tsx";
import { Places } from "./places.tsx";

interface PoolProps {
  pool: nouns.Pool;
  /** The workers of its machines; undefined while they are not known. */
  machines: nouns.Machine[] | undefined;
  /** Its last ones. */
  ended?: readonly nouns.Machine[];
}

type PoolMoney = Pick<ComponentProps<typeof PoolCost>, "month" | "budget">;

const pathOf = (name: string, act: string) => `/v1/pools/${encodeURIComponent(name)}/${act}`;
const jobsOf = (pool: string, state: string) => `/jobs?pool=${encodeURIComponent(pool)}&state=${state}`;

export function PoolPanel({ pool, machines, ended = [], month, budget }: PoolProps & PoolMoney) {
  const may = useMay();
  const { name, claimable, running, concurrency, oldest, nextDue } = pool;
  return (
    <Panel title={<span className="foreign">{inert(name)}</span>} acts={may.manage && <PoolActs pool={pool} />} bare>
      <Doing pool={pool} machines={machines} />
      <dl className="figures">
        <Figure name="Ready to start">
          {claimable > 0 ? <Link href={jobsOf(name, "queued")}>{count(claimable)}</Link> : count(claimable)}
        </Figure>
        <Figure name="Running">
          {running > 0 ? <Link href={jobsOf(name, "running")}>{count(running)}</Link> : count(running)}
        </Figure>
        <Figure name="Cap">{concurrency === null ? "none" : count(concurrency)}</Figure>
        <Figure name="Oldest ready">
          <Moment at={oldest} />
        </Figure>
        <Figure name="Next due">{claimable > 0 && pool.paused === null ? "now" : <Moment at={nextDue} />}</Figure>
      </dl>
      {pool.machines && machines && <Places of={pool.machines} machines={machines} />}
      {pool.machines && <PoolCost of={pool.machines} month={month} budget={budget} />}
      {machines && machines.length > 0 ? (
        <MachineTable machines={machines} />
      ) : (
        <p className="no-machine soft small">{machines ? noneWords(pool) : "One moment…"}</p>
      )}
      <EndedMachines ended={ended} telling={pool.wastedStarts > 0} />
    </Panel>
  );
}

function noneWords({ machines, claimable }: nouns.Pool): string {
  if (machines === null) return "No worker is awake. One that sleeps is not seen here.";
  return claimable > 0 ? "No machine is up yet." : "No machine is up, as it should be while nothing is to be done.";
}

function Figure({ name, children }: { name: string; children: ReactNode }) {
  return (
    <div>
      <dt>{name}</dt>
      <dd className="number">{children}</dd>
    </div>
  );
}

/** A worker that sleeps is given a moment to wake before it is called missing. */
const WAKES_WITHIN_MS = 5_000;

function Doing({ pool, machines }: PoolProps) {
  const now = useNow();
  const { name, paused, claimable, running, concurrency, oldest, nextDue } = pool;
  const wait = claimable === 1 ? "1 job waits" : `${count(claimable)} jobs wait`;
  if (paused) {
    return (
      <div className="doing" data-tone="amber">
        <strong>
          Paused{paused.by !== null && <span className="foreign"> by {inert(paused.by)}</span>}{" "}
          <Moment at={paused.at} />
        </strong>
        {paused.reason !== null && <span className="foreign">{inert(paused.reason)}</span>}
        <span>{claimable > 0 ? `${wait} until it is resumed.` : "Nothing new is started."} What runs goes on.</span>
      </div>
    );
  }
  const held = heldBack(pool);
  if (held) return <HeldBack held={held} wait={claimable > 0 ? wait : undefined} />;
  const lateMs = oldest === null ? 0 : now - Date.parse(oldest);
  const isAlone = machines?.length === 0 && lateMs > WAKES_WITHIN_MS;
  if (claimable > 0 && pool.machines) return <Wants pool={pool} of={pool.machines} wait={wait} lateMs={lateMs} />;
  if (claimable > 0 && isAlone) {
    return (
      <div className="doing" data-tone="amber">
        <strong>No worker serves this pool while {wait}</strong>
        <Command>{`npx stillwake worker --pool ${name}`}</Command>
      </div>
    );
  }
  if (claimable > 0 && concurrency !== null && running >= concurrency) {
    return (
      <div className="doing" data-tone="amber">
        <strong>It has reached its cap</strong> {several(running, "job")} of {count(concurrency)} run; {wait}.
      </div>
    );
  }
  if (claimable > 0) return <div className="doing">{wait} for the next free slot</div>;
  if (running > 0) {
    const many = machines?.length ?? 0;
    const on = many > 0 && ` on ${several(many, pool.machines ? "machine" : "worker")}`;
    return (
      <div className="doing">
        {running === 1 ? "1 job runs" : `${count(running)} jobs run`}
        {on}; none waits for a slot
      </div>
    );
  }
  const later = nextDue !== null && Date.parse(nextDue) > now;
  return (
    <div className="doing">
      {later ? (
        <>
          Nothing to do; next is due <Moment at={nextDue} />
        </>
      ) : (
        "Nothing to do"
      )}
    </div>
  );
}

function HeldBack({ held: { tone, what, why, until }, wait }: { held: Held; wait: string | undefined }) {
  const now = useNow();
  return (
    <div className="doing" data-tone={tone}>
      <strong>
        {what}
        {wait && ` while ${wait}`}
      </strong>
      <span className="foreign">{inert(why)}</span>
      {until !== null && Date.parse(until) > now && (
        <span className="soft">
          Tried again <Moment at={until} />
        </span>
      )}
    </div>
  );
}

/** An orchestrator that was poked needs seconds; one that was not is woken by the watchdog within a minute. */
const STARTS_WITHIN_MS = 90_000;

/** The decision that the orchestrator has made, or will. */
function Wants({
  pool: { wanted, concurrency, running },
  of: { now: has, max, starting },
  wait,
  lateMs,
}: {
  pool: nouns.Pool;
  of: NonNullable<nouns.Pool["machines"]>;
  wait: string;
  lateMs: number;
}) {
  if (has === 0 && lateMs > STARTS_WITHIN_MS) {
    return (
      <div className="doing" data-tone="amber">
        <strong>No machine was started while {wait}</strong>
        <span>Is the orchestrator running?</span>
        <Command>npx stillwake orchestrator</Command>
      </div>
    );
  }
  const full = has >= max && starting === 0;
  const capped = concurrency !== null && running >= concurrency;
  const coming = starting > 0 && `; ${starting === 1 ? "1 starts" : `${count(starting)} start`}`;
  return (
    <div className="doing" data-tone={full ? "amber" : undefined}>
      <span>
        Wants {several(wanted ?? 0, "machine")}, has {count(has)}: {wait}
        {coming}
        {full && `; as many machines as may be (${count(max)})`}
        {capped && `; it has reached its cap of ${several(concurrency, "job")}`}
      </span>
    </div>
  );
}

function PoolActs({ pool }: { pool: nouns.Pool }) {
  const { act, busy } = useAct();
  const [open, setOpen] = useState<"pause" | "cap">();
  const { name, paused } = pool;
  return (
    <>
      <Button onClick={() => setOpen("cap")}>Cap…</Button>
      {paused ? (
        <Button disabled={busy} onClick={() => act({ path: pathOf(name, "resume"), done: `Pool ${name} goes on` })}>
          Resume
        </Button>
      ) : (
        <>
          {heldBack(pool) && (
            <Button disabled={busy} onClick={() => act({ path: pathOf(name, "resume"), done: "It is tried again" })}>
              Try again
            </Button>
          )}
          <Button onClick={() => setOpen("pause")}>Pause…</Button>
        </>
      )}
      {open === "pause" && <PauseForm pool={pool} onClose={() => setOpen(undefined)} />}
      {open === "cap" && <CapForm pool={pool} onClose={() => setOpen(undefined)} />}
    </>
  );
}

function PauseForm({ pool: { name }, onClose }: { pool: nouns.Pool; onClose: () => void }) {
  const { submit, ...form } = useSubmit();
  async function pause(data: FormData): Promise<void> {
    const reason = String(data.get("reason")).trim();
    const body = reason ? { reason } : {};
    if (await submit({ path: pathOf(name, "pause"), body, done: `Pool ${name} is paused` })) onClose();
  }
  return (
    <FormDialog
      title={`Pause the pool ${inert(name)}`}
      yes="Pause"
      form={form}
      fields={["reason"]}
      onSubmit={pause}
      onClose={onClose}
    >
      <p className="small">Nothing new is started until somebody resumes it. What runs goes on to its end.</p>
      <Field
        name="reason"
        label="Why"
        help="Shown to everybody who asks what it waits for."
        wrong={wrongAt(form.wrong, "reason")}
      >
        {(props) => <input {...props} maxLength={2000} />}
      </Field>
    </FormDialog>
  );
}

const notACap = new Refused({
  code: "INVALID_INPUT",
  status: 400,
  detail: "A cap is a whole number from 1 on",
  remedy: "Leave it empty for no cap; to start nothing, pause the pool.",
  field: "concurrency",
});

function CapForm({ pool: { name, concurrency }, onClose }: { pool: nouns.Pool; onClose: () => void }) {
  const { submit, setWrong, ...form } = useSubmit();
  async function cap(data: FormData): Promise<void> {
    const most = readCap(String(data.get("concurrency")));
    if (most === undefined) return setWrong(notACap);
    const done = most === null ? `Pool ${name} has no cap` : `Pool ${name} runs ${several(most, "job")} at most`;
    if (await submit({ path: pathOf(name, "cap"), body: { concurrency: most }, done })) onClose();
  }
  return (
    <FormDialog
      title={`Cap the pool ${inert(name)}`}
      yes="Set the cap"
      form={form}
      fields={["concurrency"]}
      onSubmit={cap}
      onClose={onClose}
    >
      <Field
        name="concurrency"
        label="Jobs at once, on all workers together"
        help="Empty: as many as there are slots. Jobs that run already are not stopped."
        wrong={wrongAt(form.wrong, "concurrency")}
      >
        {(props) => (
          // A field for numbers hands over nothing at all for what it cannot read, and nothing means no cap.
          <input {...props} inputMode="numeric" autoComplete="off" maxLength={20} defaultValue={concurrency ?? ""} />
        )}
      </Field>
    </FormDialog>
  );
}
