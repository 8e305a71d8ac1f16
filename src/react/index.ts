"use client";
// stillwake/react: useJob returns the live state of a job; <JobLog> and <JobProgress> show it. Components of one job
// share one connection. Nothing here touches the page during server rendering.
import { createElement, type ReactElement, useEffect, useMemo, useRef, useSyncExternalStore } from "react";
import type { JobStore } from "../view/job-store.ts";
import type { Run } from "../view/log/log-toolbar.ts";
import { LogView } from "../view/log/log-view.ts";
import { ProgressView } from "../view/progress-view.ts";
import { emptySnapshot, type Snapshot } from "../view/snapshot.ts";
import type { TokenSource } from "../view/stream.ts";
import { getSharedStore, retainStore, updateToken } from "./shared.ts";

export {
  formatAgo,
  formatBytes,
  formatCount,
  formatDuration,
  formatMoney,
  formatPlural,
  formatTime,
} from "../text/format.ts";
export type { ProgressRate } from "../text/progress-rate.ts";
export { JobStore, type JobStoreOptions } from "../view/job-store.ts";
export type { Run } from "../view/log/log-toolbar.ts";
export { escapeText, escapeTextLine, type JsonPart, maskedJson } from "../view/safe-text.ts";
export { formatEvent, formatOutcome, formatProgress, headline } from "../view/sentences.ts";
export type { Line, Snapshot, StepView } from "../view/snapshot.ts";
export type { Connection, TokenSource } from "../view/stream.ts";
export type { Artifact, Failure, JobState, Level, Progress, WaitReason } from "../view/wire.ts";

export interface UseJobOptions {
  /** URL of the server, such as https://jobs.example.com. Default: the origin of the page. */
  server?: string | undefined;
}

/** The state of a job, and its store, to pass to components. */
export interface FollowedJob extends Snapshot {
  store: JobStore;
}

/**
 * Follows a job while the component is mounted. Without a token the cookie of the page is sent. Components with the
 * same token, or the same token function, share one connection.
 */
export function useJob(id: string, token?: TokenSource, { server }: UseJobOptions = {}): FollowedJob {
  const store = useStore({ id, token, server });
  const snapshot = useSyncExternalStore(store.subscribe, store.getSnapshot, () => serverSnapshot(id));
  return useMemo(() => ({ ...snapshot, store }), [snapshot, store]);
}

interface JobProps {
  id?: string | undefined;
  token?: TokenSource | undefined;
  server?: string | undefined;
  /** From useJob(), instead of id and token. */
  store?: JobStore | undefined;
  className?: string | undefined;
}

export interface JobLogProps extends JobProps {
  /** Jobs that the user can switch to, such as earlier ones of the same key. */
  runs?: readonly Run[] | undefined;
  onRun?: ((id: string) => void) | undefined;
  /** A number of pixels, or any CSS length. Default: 28rem. */
  height?: number | string | undefined;
}

/** The live log of a job, selected by `id` and `token`, or by the `store` of useJob(). */
export function JobLog({ runs, onRun, height, className, ...job }: JobLogProps): ReactElement {
  const store = useStore(job);
  const container = useRef<HTMLDivElement>(null);
  const view = useRef<LogView | null>(null);
  useEffect(() => {
    view.current = new LogView(container.current!, { store });
    return () => {
      view.current?.destroy();
      view.current = null;
    };
  }, [store]);
  useEffect(() => view.current?.setRuns(runs ?? [], onRun), [store, runs, onRun]);
  const style = height === undefined ? undefined : { "--stillwake-log-height": toCssLength(height) };
  return createElement("div", { ref: container, className, style: style as object });
}

export interface JobProgressProps extends JobProps {}

/** The current activity of a job, its progress and the remaining time. */
export function JobProgress({ className, ...job }: JobProgressProps): ReactElement {
  const store = useStore(job);
  const container = useRef<HTMLDivElement>(null);
  useEffect(() => {
    const view = new ProgressView(container.current!, store);
    return () => view.destroy();
  }, [store]);
  return createElement("div", { ref: container, className });
}

function useStore({ id = "", token, server, store: ownStore }: JobProps): JobStore {
  // A token function is often a new one in each render: the store is kept, and calls the latest function.
  const fixedToken = typeof token === "function" ? true : token;
  const store = useMemo(() => ownStore ?? getSharedStore({ id, token, server }), [ownStore, id, fixedToken, server]);
  useEffect(() => (ownStore ? undefined : updateToken(store, token)), [ownStore, store, token]);
  useEffect(() => (ownStore ? undefined : retainStore(store)), [ownStore, store]);
  return store;
}

function toCssLength(height: number | string): string {
  return typeof height === "number" ? `${height}px` : height;
}

/** The snapshot during server rendering; React requires the same object in each call. */
const serverSnapshots = new Map<string, Snapshot>();

function serverSnapshot(id: string): Snapshot {
  let snapshot = serverSnapshots.get(id);
  if (!snapshot) {
    if (serverSnapshots.size > 1000) serverSnapshots.clear();
    snapshot = emptySnapshot(id);
    serverSnapshots.set(id, snapshot);
  }
  return snapshot;
}
