"use client";
// stillwake/react: a job in a page of yours. `useJob` for its state, <JobLog> and <JobProgress> to show it. Components of one job share one connection, and nothing
// here touches the page while a server renders.
import { createElement, type ReactElement, useEffect, useMemo, useRef, useSyncExternalStore } from "react";
import type { JobStore } from "../view/job-store.ts";
import type { Run } from "../view/log/log-toolbar.ts";
import { LogView } from "../view/log/log-view.ts";
import { ProgressView } from "../view/progress-view.ts";
import { emptySnapshot, type Snapshot } from "../view/snapshot.ts";
import type { TokenSource } from "../view/stream.ts";
import { hold, renew, sharedStore } from "./shared.ts";

export { JobStore, type JobStoreOptions } from "../view/job-store.ts";
export type { Run } from "../view/log/log-toolbar.ts";
export type { PaceNow } from "../view/pace.ts";
export { type JsonPart, maskedJson, plain, plainLine } from "../view/plain.ts";
export type { Line, Snapshot, StepSeen } from "../view/snapshot.ts";
export type { Connection, TokenSource } from "../view/stream.ts";
export type { Artifact, Failure, JobState, Level, Progress, WaitReason } from "../view/wire.ts";
export { clock, ending, eventSentence, headline, progressWords, span } from "../view/words.ts";

export interface UseJobOptions {
  /** Where the server is, such as https://jobs.example.com. Default: where the page came from. */
  server?: string | undefined;
}

/** A job as it stands, and the store it comes from, to be handed to components. */
export interface FollowedJob extends Snapshot {
  store: JobStore;
}

/** Follows a job for as long as the component is shown. Without a token the cookie of the page is sent. Components that give the same token, or the same function, share one connection. */
export function useJob(id: string, token?: TokenSource, { server }: UseJobOptions = {}): FollowedJob {
  const store = useStore({ id, token, server });
  const snapshot = useSyncExternalStore(store.subscribe, store.getSnapshot, () => unknown(id));
  return useMemo(() => ({ ...snapshot, store: store }), [snapshot, store]);
}

interface JobProps {
  id?: string | undefined;
  token?: TokenSource | undefined;
  server?: string | undefined;
  /** Of useJob(), instead of id and token. */
  store?: JobStore | undefined;
  className?: string | undefined;
}

export interface JobLogProps extends JobProps {
  /** Jobs to choose from, such as earlier ones of the same key. */
  runs?: readonly Run[] | undefined;
  onRun?: ((id: string) => void) | undefined;
  /** Of the panel: a number of pixels, or any CSS length. Default: 28rem. */
  height?: number | string | undefined;
}

/** The live log of a job. Give it a job by `id` and `token`, or the `store` of useJob(). */
export function JobLog({ runs, onRun, height, className, ...of }: JobLogProps): ReactElement {
  const store = useStore(of);
  const place = useRef<HTMLDivElement>(null);
  const view = useRef<LogView | null>(null);
  useEffect(() => {
    view.current = new LogView(place.current!, { store });
    return () => {
      view.current?.destroy();
      view.current = null;
    };
  }, [store]);
  useEffect(() => view.current?.setRuns(runs ?? [], onRun), [store, runs, onRun]);
  const style = height === undefined ? undefined : { "--stillwake-log-height": lengthOf(height) };
  return createElement("div", { ref: place, className, style: style as object });
}

export interface JobProgressProps extends JobProps {}

/** What a job is doing, how far it is and how long it will take. */
export function JobProgress({ className, ...of }: JobProgressProps): ReactElement {
  const store = useStore(of);
  const place = useRef<HTMLDivElement>(null);
  useEffect(() => {
    const view = new ProgressView(place.current!, store);
    return () => view.destroy();
  }, [store]);
  return createElement("div", { ref: place, className });
}

function useStore({ id = "", token, server, store: given }: JobProps): JobStore {
  // A function that gives tokens is often another one each time the component is drawn: the store stays that of the first, and asks the latest.
  const fixed = typeof token === "function" ? true : token;
  const store = useMemo(() => given ?? sharedStore({ id, token, server }), [given, id, fixed, server]);
  useEffect(() => (given ? undefined : renew(store, token)), [given, store, token]);
  useEffect(() => (given ? undefined : hold(store)), [given, store]);
  return store;
}

function lengthOf(height: number | string): string {
  return typeof height === "number" ? `${height}px` : height;
}

/** While a server renders nothing is known; the same object each time, as React wants it. */
const unknowns = new Map<string, Snapshot>();

function unknown(id: string): Snapshot {
  let snapshot = unknowns.get(id);
  if (!snapshot) {
    if (unknowns.size > 1000) unknowns.clear();
    snapshot = emptySnapshot(id);
    unknowns.set(id, snapshot);
  }
  return snapshot;
}
