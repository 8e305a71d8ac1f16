// One store per job, server and token of a page, however many components show it. It is let go soon after the last of them has gone.
import { JobStore, type JobStoreOptions } from "../view/job-store.ts";
import type { TokenSource } from "../view/stream.ts";

type Wanted = Pick<JobStoreOptions, "id" | "server" | "token">;

interface Shared {
  key: string;
  store: JobStore;
  users: number;
  leaving: ReturnType<typeof setTimeout> | undefined;
  /** What its holders have given last: a function that gives tokens is often another one each time a component is drawn. */
  token: TokenSource | undefined;
}

/** A framework that mounts twice, or a walk from one view to the next, keeps it for so long. */
const LINGER_MS = 1000;
/** One that was drawn and not shown yet has no connection, and may still be shown. */
const UNSHOWN_MS = 30_000;

const shared = new Map<string, Shared>();
const owners = new WeakMap<JobStore, Shared>();
const numbers = new WeakMap<object, number>();
let given = 0;

/** The store of this job, made when there is none. It is held from `hold` on. */
export function sharedStore({ id, server, token }: Wanted): JobStore {
  // What a server renders is for one request, and shared with none.
  if (!("document" in globalThis)) return new JobStore({ id, server, token });
  const key = keyOf({ id, server, token });
  const known = shared.get(key);
  if (known) return known.store;
  const latest = async () => {
    const source = made.token;
    return typeof source === "function" ? source() : (source ?? "");
  };
  const store = new JobStore({ id, server, token: typeof token === "function" ? latest : token });
  const made: Shared = { key, store, users: 0, leaving: undefined, token };
  shared.set(key, made);
  owners.set(store, made);
  letGo(made, UNSHOWN_MS);
  return store;
}

/** Answers how to let it go. A store that was given by the page is the page's own. */
export function hold(store: JobStore): () => void {
  const held = owners.get(store);
  if (!held) return () => {};
  // One that was let go between the drawing and the holding of it is shared again.
  if (!shared.has(held.key)) shared.set(held.key, held);
  clearTimeout(held.leaving);
  held.users += 1;
  return () => {
    held.users -= 1;
    if (held.users === 0) letGo(held, LINGER_MS);
  };
}

/** Tokens come from this function from now on. */
export function renew(store: JobStore, token: TokenSource | undefined): void {
  const held = owners.get(store);
  if (held && typeof token === "function") held.token = token;
}

function letGo(one: Shared, afterMs: number): void {
  clearTimeout(one.leaving);
  one.leaving = setTimeout(() => {
    if (one.users > 0) return;
    one.store.close();
    if (shared.get(one.key) === one) shared.delete(one.key);
  }, afterMs);
}

/** Two functions that give tokens may give those of two people: only one and the same is shared. */
function keyOf({ id, server = "", token }: Wanted): string {
  if (typeof token !== "function") return JSON.stringify([server, id, token ?? null]);
  if (!numbers.has(token)) numbers.set(token, ++given);
  return JSON.stringify([server, id, numbers.get(token)]);
}
