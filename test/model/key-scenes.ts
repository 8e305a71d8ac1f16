// The plays about keys: how they begin, what each actor can do in its transaction, and what may come of it.
import type { Held } from "./actors.ts";
import type { Statement } from "./interleave.ts";

/** The jobs of one key at the beginning. Where a scene has none of a kind, the verbs about it have nothing to do. */
export interface Cast {
  pipeline: string;
  /** Runs, and its lease has run out: whoever looks may end it. */
  runner: Held | undefined;
  /** Has its place and waits for a worker. */
  queued: string | undefined;
  waiter: string | undefined;
  paused: string | undefined;
  ended: string;
}

export interface Scene {
  name: string;
  pipeline: string;
  holders: ("runner" | "queued")[];
  waiter: boolean;
}

export const scenes: Scene[] = [
  { name: "one place: it is worked at, one waits, one is paused", pipeline: "one", holders: ["runner"], waiter: true },
  { name: "one place: it is worked at, nobody waits", pipeline: "one", holders: ["runner"], waiter: false },
  { name: "one place: its job waits for a worker, one is paused", pipeline: "one", holders: ["queued"], waiter: false },
  { name: "one place: free, one is paused", pipeline: "one", holders: [], waiter: false },
  {
    name: "two places: both taken, one waits, one is paused",
    pipeline: "two",
    holders: ["runner", "queued"],
    waiter: true,
  },
  { name: "two places: one is free, one is paused", pipeline: "two", holders: ["runner"], waiter: false },
  { name: "two places: both free, one is paused", pipeline: "two", holders: [], waiter: false },
];

const arrival = (cast: Cast, onConflict: string, id: string): Statement => ({
  text: "select stillwake.enqueue_many($1, '[{}]', $2, array[$3::uuid])",
  values: [cast.pipeline, { key: "k", on_conflict: onConflict }, id],
});
export const settlement = (held: Held, more: object): Statement => ({
  text: "select * from stillwake.settle($1)",
  values: [JSON.stringify([{ ...held, ...more }])],
});
const about = (verb: string, id: string | undefined): Statement[] =>
  id === undefined ? [] : [{ text: `select stillwake.${verb}($1)`, values: [id] }];

/** What an actor does in its transaction; the ids are its own, so that the ends of plays can be compared. */
export const verbs: Record<string, (cast: Cast, own: string[]) => Statement[]> = {
  complete: ({ runner }) => (runner ? [settlement(runner, { outcome: "completed" })] : []),
  fail: ({ runner }) => (runner ? [settlement(runner, { outcome: "failed", fatal: true, failure: {} })] : []),
  "enqueue wait": (cast, [id]) => [arrival(cast, "wait", id!)],
  "enqueue join": (cast, [id]) => [arrival(cast, "join", id!)],
  "enqueue replace": (cast, [id]) => [arrival(cast, "replace", id!)],
  "enqueue reject": (cast, [id]) => [arrival(cast, "reject", id!)],
  "enqueue two": (cast, [one, two]) => [arrival(cast, "wait", one!), arrival(cast, "wait", two!)],
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
/** Of those that are due a claim takes what it meets, and a transaction of several statements sees what others commit in between. */
export const loose = ["claim", "enqueue two"];

/** As keys.sql says: who takes a place and lets another job wait for it in one transaction, against who looks at that place meanwhile. */
export function mayDeadlock(chosen: (string | null)[]): boolean {
  return chosen.includes("enqueue two") && (chosen.includes("resume") || chosen.includes("retry"));
}
