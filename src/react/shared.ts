// One store per job, server and token of a page, shared by all components. Closed soon after the last one unmounts.
import { JobStore, type JobStoreOptions } from "../view/job-store.ts";
import type { TokenSource } from "../view/stream.ts";

type StoreSource = Pick<JobStoreOptions, "id" | "server" | "token">;

interface SharedStore {
  key: string;
  store: JobStore;
  users: number;
  closing: ReturnType<typeof setTimeout> | undefined;
  /** The latest token source: a token function is often a new one in each render. */
  token: TokenSource | undefined;
}

/** A store outlives its last component by this time: frameworks mount twice, and users switch between views. */
const LINGER_MS = 1000;
/** For a store of a component that was rendered but not mounted; it has no connection yet. */
const UNMOUNTED_MS = 30_000;

const stores = new Map<string, SharedStore>();
const entries = new WeakMap<JobStore, SharedStore>();
const functionIds = new WeakMap<object, number>();
let lastFunctionId = 0;

/** Returns the store of this job, creating it if necessary. retainStore() keeps it. */
export function getSharedStore({ id, server, token }: StoreSource): JobStore {
  // Server rendering: a store per request, never shared.
  if (!("document" in globalThis)) return new JobStore({ id, server, token });
  const key = keyOf({ id, server, token });
  const known = stores.get(key);
  if (known) return known.store;
  const latestToken = async () => {
    const source = entry.token;
    return typeof source === "function" ? source() : (source ?? "");
  };
  const store = new JobStore({ id, server, token: typeof token === "function" ? latestToken : token });
  const entry: SharedStore = { key, store, users: 0, closing: undefined, token };
  stores.set(key, entry);
  entries.set(store, entry);
  closeLater(entry, UNMOUNTED_MS);
  return store;
}

/** Returns a function that releases it. A store that the page created itself is left alone. */
export function retainStore(store: JobStore): () => void {
  const entry = entries.get(store);
  if (!entry) return () => {};
  // A store that was closed between rendering and mounting is shared again.
  if (!stores.has(entry.key)) stores.set(entry.key, entry);
  clearTimeout(entry.closing);
  entry.users += 1;
  return () => {
    entry.users -= 1;
    if (entry.users === 0) closeLater(entry, LINGER_MS);
  };
}

/** Makes the store use this token function from now on. */
export function updateToken(store: JobStore, token: TokenSource | undefined): void {
  const entry = entries.get(store);
  if (entry && typeof token === "function") entry.token = token;
}

function closeLater(entry: SharedStore, afterMs: number): void {
  clearTimeout(entry.closing);
  entry.closing = setTimeout(() => {
    if (entry.users > 0) return;
    entry.store.close();
    if (stores.get(entry.key) === entry) stores.delete(entry.key);
  }, afterMs);
}

/** Two token functions may return the tokens of two users: a store is shared only for the same function. */
function keyOf({ id, server = "", token }: StoreSource): string {
  if (typeof token !== "function") return JSON.stringify([server, id, token ?? null]);
  if (!functionIds.has(token)) functionIds.set(token, ++lastFunctionId);
  return JSON.stringify([server, id, functionIds.get(token)]);
}
