// The resources of the API: the path of each, and whether it can change on its own. The types are the server's.

import { useApiQuery } from "@stillwake/ui/api/query.ts";
import type { api } from "stillwake/server";
import { isStarting } from "../parts/machine-text.ts";

export type { api };
export type JobState = api.Job["state"];

export const states: readonly JobState[] = ["queued", "running", "paused", "completed", "failed", "cancelled"];

export function hasEnded(state: JobState): boolean {
  return state === "completed" || state === "failed" || state === "cancelled";
}

/** The path of a job, or of a resource below it. */
export const jobPath = (id: string, rest = "") => `/v1/jobs/${encodeURIComponent(id)}${rest}`;

export interface Me {
  name: string;
  role: "reader" | "operator" | "admin" | "worker" | "follower";
  tenant: string | null;
  expiresAt: string | null;
}

export const IDENTITY_PATH = "/v1/me";

export const useMe = () => useApiQuery<Me>(IDENTITY_PATH, { once: true });

export type JobFilters = Partial<
  Record<"pipeline" | "pool" | "state" | "key" | "tenant" | "parent" | "since" | "until" | "text" | "cursor", string>
> & { limit?: number };

export const useJobs = (query: JobFilters = {}, enabled = true) =>
  useApiQuery<api.JobPage>("/v1/jobs", {
    query,
    enabled,
    changing: ({ jobs }) => jobs.some(({ state }) => !hasEnded(state)),
  });

export const useJobWebhooks = (id: string, enabled: boolean) =>
  useApiQuery<{ webhooks: api.Webhook[] }>(jobPath(id, "/webhooks"), {
    enabled,
    changing: ({ webhooks }) => webhooks.some(({ state }) => state === "pending"),
  });

/** Changes only by an action: refetched slowly. */
const unchanging = { changing: () => false };

export const usePipelines = () => useApiQuery<{ pipelines: api.Pipeline[] }>("/v1/pipelines", unchanging);
export const usePools = (enabled = true) =>
  useApiQuery<{ pools: api.Pool[] }>("/v1/pools", {
    enabled,
    changing: ({ pools }) =>
      pools.some(({ claimable, running, machines }) => claimable + running + (machines?.now ?? 0) > 0),
    urgent: ({ pools }) => pools.some(isStarting),
  });
export const useMachines = (enabled = true, urgent = false) =>
  useApiQuery<{ machines: api.Machine[] }>("/v1/machines", {
    enabled,
    changing: ({ machines }) => machines.some(({ running, machine }) => running > 0 || machine !== null),
    urgent: () => urgent,
  });
/** Including machines that have ended. Refetched by the page when it notices that one has. */
export const useEndedMachines = (enabled: boolean) =>
  useApiQuery<{ machines: api.Machine[] }>("/v1/machines", { once: true, query: { ended: "true" }, enabled });
/** This month, by pool. Fetched once: the database adds up a whole month. */
export const useCosts = (enabled = true) => useApiQuery<api.CostReport>("/v1/costs", { enabled, once: true });
export const useBudgets = (enabled = true) =>
  useApiQuery<{ budgets: api.Budget[] }>("/v1/budgets", { ...unchanging, enabled });
export const useJobCost = (id: string, enabled: boolean) =>
  useApiQuery<api.JobCost>(jobPath(id, "/cost"), { ...unchanging, enabled });
export const useLimits = (enabled = true) =>
  useApiQuery<{ limits: api.Limit[] }>("/v1/limits", {
    enabled,
    changing: ({ limits }) => limits.some(({ until, blockedUntil }) => until !== null || blockedUntil !== null),
  });
export const useBreakers = (enabled = true) =>
  useApiQuery<{ breakers: api.Breaker[] }>("/v1/breakers", {
    enabled,
    changing: ({ breakers }) => breakers.some(({ state }) => state === "open"),
  });
export const useSchedules = (enabled = true) =>
  useApiQuery<{ schedules: api.Schedule[] }>("/v1/schedules", { ...unchanging, enabled });
export const useOccurrences = (name: string, count: number, enabled: boolean) =>
  useApiQuery<{ occurrences: api.Occurrence[] }>(`/v1/schedules/${encodeURIComponent(name)}/upcoming`, {
    ...unchanging,
    query: { count },
    enabled,
  });
export const useEndpoints = (enabled = true) =>
  useApiQuery<{ endpoints: api.Endpoint[] }>("/v1/endpoints", { ...unchanging, enabled });

export interface WebhookFilters {
  endpoint?: string;
  job?: string;
  state?: string;
  limit?: number;
  cursor?: string;
}

export const useWebhooks = (filters: WebhookFilters, enabled = true) =>
  useApiQuery<{ webhooks: api.Webhook[]; cursor: string | null }>("/v1/webhooks", {
    query: { ...filters },
    enabled,
    changing: ({ webhooks }) => webhooks.some(({ state }) => state === "pending"),
  });

export const useWebhook = (id: string) =>
  useApiQuery<api.Webhook>(`/v1/webhooks/${encodeURIComponent(id)}`, { changing: ({ state }) => state === "pending" });

export const useStats = (span: string, parts: number, enabled = true) =>
  useApiQuery<api.Stats>("/v1/stats", {
    query: { span, parts },
    enabled,
    changing: ({ live: { queued, running } }) => queued + running > 0,
  });

export const useTokens = (enabled = true) =>
  useApiQuery<{ tokens: api.Token[] }>("/v1/tokens", { ...unchanging, enabled });
export const useAuditEntries = (query: { target?: string; limit?: number; cursor?: string }, enabled = true) =>
  useApiQuery<{ entries: api.AuditEntry[]; cursor: string | null }>("/v1/audit", { ...unchanging, query, enabled });
