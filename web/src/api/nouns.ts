// The nouns of the API: where each is asked for, and when it stops to change by itself. Types are the server's own.
import type { nouns } from "stillwake/server";
import { isStarting } from "../parts/machine-words.ts";
import { useAnswer, WHO } from "./ask.ts";

export type { nouns };
export type JobState = nouns.Job["state"];

export const states: readonly JobState[] = ["queued", "running", "paused", "completed", "failed", "cancelled"];

export function isOver(state: JobState): boolean {
  return state === "completed" || state === "failed" || state === "cancelled";
}

/** Where a job is, and what hangs on it. */
export const ofJob = (id: string, rest = "") => `/v1/jobs/${encodeURIComponent(id)}${rest}`;

export interface Me {
  name: string;
  role: "reader" | "operator" | "admin" | "worker" | "follower";
  tenant: string | null;
  expiresAt: string | null;
}

export const useMe = () => useAnswer<Me>(WHO, { once: true });

export type JobFilters = Partial<
  Record<"pipeline" | "pool" | "state" | "key" | "tenant" | "parent" | "since" | "until" | "text" | "cursor", string>
> & { limit?: number };

export const useJobs = (query: JobFilters = {}, enabled = true) =>
  useAnswer<nouns.JobPage>("/v1/jobs", {
    query,
    enabled,
    moving: ({ jobs }) => jobs.some(({ state }) => !isOver(state)),
  });

export const useJobWebhooks = (id: string, enabled: boolean) =>
  useAnswer<{ webhooks: nouns.Webhook[] }>(ofJob(id, "/webhooks"), {
    enabled,
    moving: ({ webhooks }) => webhooks.some(({ state }) => state === "pending"),
  });

/** What is quiet for long may be asked for seldom. */
const quiet = { moving: () => false };

export const usePipelines = () => useAnswer<{ pipelines: nouns.Pipeline[] }>("/v1/pipelines", quiet);
export const usePools = (enabled = true) =>
  useAnswer<{ pools: nouns.Pool[] }>("/v1/pools", {
    enabled,
    moving: ({ pools }) =>
      pools.some(({ claimable, running, machines }) => claimable + running + (machines?.now ?? 0) > 0),
    fleeting: ({ pools }) => pools.some(isStarting),
  });
export const useMachines = (enabled = true, awaited = false) =>
  useAnswer<{ machines: nouns.Machine[] }>("/v1/machines", {
    enabled,
    // A machine that is there comes, works or goes by itself.
    moving: ({ machines }) => machines.some(({ running, machine }) => running > 0 || machine !== null),
    fleeting: () => awaited,
  });
/** Those that have ended among them: asked for again by whoever sees that one has. */
export const useEndedMachines = (enabled: boolean) =>
  useAnswer<{ machines: nouns.Machine[] }>("/v1/machines", { once: true, query: { ended: "true" }, enabled });
/** Of this month, by pool. To add up a month is work for the database: once for a look. */
export const useCosts = (enabled = true) => useAnswer<nouns.CostReport>("/v1/costs", { enabled, once: true });
export const useBudgets = (enabled = true) =>
  useAnswer<{ budgets: nouns.Budget[] }>("/v1/budgets", { ...quiet, enabled });
export const useJobCost = (id: string, enabled: boolean) =>
  useAnswer<nouns.JobCost>(ofJob(id, "/cost"), { ...quiet, enabled });
export const useLimits = (enabled = true) =>
  useAnswer<{ limits: nouns.Limit[] }>("/v1/limits", {
    enabled,
    moving: ({ limits }) => limits.some(({ until, blockedUntil }) => until !== null || blockedUntil !== null),
  });
export const useBreakers = (enabled = true) =>
  useAnswer<{ breakers: nouns.Breaker[] }>("/v1/breakers", {
    enabled,
    moving: ({ breakers }) => breakers.some(({ state }) => state === "open"),
  });
export const useSchedules = (enabled = true) =>
  useAnswer<{ schedules: nouns.Schedule[] }>("/v1/schedules", { ...quiet, enabled });
export const useSlots = (name: string, count: number, enabled: boolean) =>
  useAnswer<{ slots: nouns.Slot[] }>(`/v1/schedules/${encodeURIComponent(name)}/upcoming`, {
    ...quiet,
    query: { count },
    enabled,
  });
export const useEndpoints = (enabled = true) =>
  useAnswer<{ endpoints: nouns.Endpoint[] }>("/v1/endpoints", { ...quiet, enabled });

export interface WebhookFilters {
  endpoint?: string;
  job?: string;
  state?: string;
  limit?: number;
  cursor?: string;
}

export const useWebhooks = (filters: WebhookFilters, enabled = true) =>
  useAnswer<{ webhooks: nouns.Webhook[]; cursor: string | null }>("/v1/webhooks", {
    query: { ...filters },
    enabled,
    moving: ({ webhooks }) => webhooks.some(({ state }) => state === "pending"),
  });

export const useWebhook = (id: string) =>
  useAnswer<nouns.Webhook>(`/v1/webhooks/${encodeURIComponent(id)}`, { moving: ({ state }) => state === "pending" });

export const useStats = (span: string, parts: number, enabled = true) =>
  useAnswer<nouns.Stats>("/v1/stats", {
    query: { span, parts },
    enabled,
    moving: ({ live: { queued, running } }) => queued + running > 0,
  });

export const useTokens = (enabled = true) => useAnswer<{ tokens: nouns.Token[] }>("/v1/tokens", { ...quiet, enabled });
export const useActs = (query: { target?: string; limit?: number; cursor?: string }, enabled = true) =>
  useAnswer<{ acts: nouns.Act[]; cursor: string | null }>("/v1/audit", { ...quiet, query, enabled });
