// Interleavings about keys: the initial jobs, what each actor can do in its transaction, and the allowed results.
import type { HeldJob } from "./actors.ts";
import type { Statement } from "./interleave.ts";

/** The jobs of one key at the start. Where a setup has none of a kind, the calls about it do nothing. */
export interface KeyJobs {
  pipeline: string;
  /** Running with an expired lease: any sweep may end it. */
  runner: HeldJob | undefined;
  /** Has its key slot and waits for a worker. */
  queued: string | undefined;
  waiter: string | undefined;
  paused: string | undefined;
  ended: string;
}

export interface KeySetup {
  name: string;
  pipeline: string;
  holders: ("runner" | "queued")[];
  waiter: boolean;
}

export const keySetups: KeySetup[] = [
  { name: "one slot: running job, one waits, one is paused", pipeline: "one", holders: ["runner"], waiter: true },
  { name: "one slot: running job, none waits", pipeline: "one", holders: ["runner"], waiter: false },
  { name: "one slot: queued job, one is paused", pipeline: "one", holders: ["queued"], waiter: false },
  { name: "one slot: free, one is paused", pipeline: "one", holders: [], waiter: false },
  {
    name: "two slots: both taken, one waits, one is paused",
    pipeline: "two",
    holders: ["runner", "queued"],
    waiter: true,
  },
  { name: "two slots: one is free, one is paused", pipeline: "two", holders: ["runner"], waiter: false },
  { name: "two slots: both free, one is paused", pipeline: "two", holders: [], waiter: false },
];

const arrival = (jobs: KeyJobs, onConflict: string, id: string): Statement => ({
  text: "select stillwake.enqueue_many($1, '[{}]', $2, array[$3::uuid])",
  values: [jobs.pipeline, { key: "k", on_conflict: onConflict }, id],
});
export const settlement = (held: HeldJob, more: object): Statement => ({
  text: "select * from stillwake.settle($1)",
  values: [JSON.stringify([{ ...held, ...more }])],
});
const about = (verb: string, id: string | undefined): Statement[] =>
  id === undefined ? [] : [{ text: `select stillwake.${verb}($1)`, values: [id] }];

/** What an actor does in its transaction; each actor has its own ids, so that results can be compared. */
export const keyCalls: Record<string, (jobs: KeyJobs, own: string[]) => Statement[]> = {
  complete: ({ runner }) => (runner ? [settlement(runner, { outcome: "completed" })] : []),
  fail: ({ runner }) => (runner ? [settlement(runner, { outcome: "failed", fatal: true, failure: {} })] : []),
  "enqueue wait": (jobs, [id]) => [arrival(jobs, "wait", id!)],
  "enqueue join": (jobs, [id]) => [arrival(jobs, "join", id!)],
  "enqueue replace": (jobs, [id]) => [arrival(jobs, "replace", id!)],
  "enqueue reject": (jobs, [id]) => [arrival(jobs, "reject", id!)],
  "enqueue two": (jobs, [one, two]) => [arrival(jobs, "wait", one!), arrival(jobs, "wait", two!)],
  "cancel holder": ({ queued }) => about("cancel", queued),
  "cancel waiter": ({ waiter }) => about("cancel", waiter),
  "pause waiter": ({ waiter }) => about("pause", waiter),
  resume: ({ paused }) => about("resume", paused),
  retry: ({ ended }) => about("retry", ended),
  recover: ({ runner }) => (runner ? [{ text: "select stillwake.recover()" }] : []),
  watchdog: () => [{ text: "select act, count from stillwake.watchdog() where act in ('recovered', 'admitted')" }],
  claim: ({ pipeline }) => [
    { text: "select job_id, epoch from stillwake.claim('new', 'default', array[$1], 5)", values: [pipeline] },
  ],
};
export const sweeps = ["recover", "watchdog", "claim"];
/** A claim takes any of the due jobs, and a transaction of several statements sees commits in between. */
export const nondeterministic = ["claim", "enqueue two"];

/** As described in keys.sql: a transaction that takes a slot and lets another job wait for it, against one that checks the slot. */
export function mayDeadlock(chosen: (string | null)[]): boolean {
  return chosen.includes("enqueue two") && (chosen.includes("resume") || chosen.includes("retry"));
}
