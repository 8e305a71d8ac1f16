// All routes of the server: method, path, access class, name, operation. A route without an access class does not compile.
import type { Access } from "./http/access.ts";
import type { Operation, Route } from "./operation.ts";
import * as costs from "./routes/costs.ts";
import * as fleet from "./routes/fleet.ts";
import * as flow from "./routes/flow.ts";
import * as control from "./routes/job-control.ts";
import * as jobs from "./routes/jobs.ts";
import { follow } from "./routes/live.ts";
import * as schedules from "./routes/schedules.ts";
import * as system from "./routes/system.ts";
import * as tokens from "./routes/tokens.ts";
import * as webhooks from "./routes/webhooks.ts";

export const routes: readonly Route[] = [
  route("GET /health", "public", "health", system.health),
  route("GET /metrics", "measure", "metrics", system.metrics),
  route("GET /openapi.json", "public", "openapi", system.openapi),
  route("GET /docs", "public", "docs", system.docs),

  route("POST /v1/jobs", "operate", "enqueue", control.enqueue),
  route("GET /v1/jobs", "follow", "listJobs", jobs.list),
  route("POST /v1/jobs/cancel", "operate", "cancelJobs", control.cancelMany),
  route("POST /v1/jobs/retry", "operate", "retryJobs", control.retryMany),
  route("GET /v1/jobs/:id", "follow", "getJob", jobs.get),
  route("GET /v1/jobs/:id/attempts", "read", "listAttempts", jobs.attempts),
  route("GET /v1/jobs/:id/steps", "follow", "listSteps", jobs.steps),
  route("GET /v1/jobs/:id/children", "read", "listChildren", jobs.children),
  route("GET /v1/jobs/:id/logs", "follow", "listLogs", jobs.logs),
  route("GET /v1/jobs/:id/stream", "follow", "followJob", follow),
  route("GET /v1/jobs/:id/artifacts", "follow", "listArtifacts", jobs.artifacts),
  route("GET /v1/jobs/:id/artifacts/:name{.+}", "follow", "getArtifact", jobs.artifact),
  route("GET /v1/jobs/:id/cost", "read", "getJobCost", costs.ofJob),
  route("GET /v1/jobs/:id/webhooks", "oversee", "listJobWebhooks", jobs.webhooks),
  route("POST /v1/jobs/:id/cancel", "operate", "cancelJob", control.cancel),
  route("POST /v1/jobs/:id/retry", "operate", "retryJob", control.retry),
  route("POST /v1/jobs/:id/pause", "operate", "pauseJob", control.pause),
  route("POST /v1/jobs/:id/resume", "operate", "resumeJob", control.resume),
  route("POST /v1/jobs/:id/signal", "operate", "signalJob", control.signal),

  route("GET /v1/pipelines", "read", "listPipelines", flow.pipelines),
  route("GET /v1/pipelines/:name", "read", "getPipeline", flow.pipeline),
  route("GET /v1/pools", "oversee", "listPools", flow.pools),
  route("POST /v1/pools/:name/pause", "manage", "pausePool", flow.pausePool),
  route("POST /v1/pools/:name/resume", "manage", "resumePool", flow.resumePool),
  route("POST /v1/pools/:name/cap", "manage", "capPool", flow.capPool),
  route("GET /v1/machines", "oversee", "listMachines", fleet.machines),
  route("POST /v1/poke", "tend", "poke", fleet.poke),
  route("GET /v1/costs", "read", "getCosts", costs.costs),
  route("GET /v1/budgets", "oversee", "listBudgets", costs.budgets),
  route("GET /v1/budgets/:scope/:name", "oversee", "getBudget", costs.budget),
  route("PUT /v1/budgets/:scope/:name", "admin", "setBudget", costs.setBudget),
  route("DELETE /v1/budgets/:scope/:name", "admin", "clearBudget", costs.clearBudget),
  route("GET /v1/limits", "oversee", "listLimits", flow.limits),
  route("POST /v1/limits/:name/reset", "manage", "resetLimit", flow.resetLimit),
  route("GET /v1/breakers", "oversee", "listBreakers", flow.breakers),
  route("POST /v1/breakers/:name/open", "manage", "openBreaker", flow.openBreaker),
  route("POST /v1/breakers/:name/close", "manage", "closeBreaker", flow.closeBreaker),

  route("GET /v1/schedules", "oversee", "listSchedules", schedules.list),
  route("GET /v1/schedules/:name/upcoming", "oversee", "listOccurrences", schedules.upcoming),
  route("PUT /v1/schedules/:name", "manage", "setSchedule", schedules.set),
  route("DELETE /v1/schedules/:name", "manage", "removeSchedule", schedules.remove),
  route("POST /v1/schedules/:name/pause", "manage", "pauseSchedule", schedules.pause),
  route("POST /v1/schedules/:name/resume", "manage", "resumeSchedule", schedules.resume),

  route("GET /v1/endpoints", "oversee", "listEndpoints", webhooks.endpoints),
  route("PUT /v1/endpoints/:name", "admin", "setEndpoint", webhooks.setEndpoint),
  route("POST /v1/endpoints/:name/rotate", "admin", "rotateSecret", webhooks.rotate),
  route("POST /v1/endpoints/:name/disable", "manage", "disableEndpoint", webhooks.disable),
  route("POST /v1/endpoints/:name/enable", "manage", "enableEndpoint", webhooks.enable),
  route("GET /v1/webhooks", "oversee", "listWebhooks", webhooks.list),
  route("GET /v1/webhooks/:id", "oversee", "getWebhook", webhooks.get),
  route("POST /v1/webhooks/:id/resend", "manage", "resendWebhook", webhooks.resend),

  route("GET /v1/health", "measure", "deepHealth", system.deepHealth),
  route("GET /v1/stats", "oversee", "stats", system.stats),
  route("POST /v1/watchdog", "tend", "watchdog", system.watchdog),
  route("GET /v1/tokens", "admin", "listTokens", tokens.list),
  route("POST /v1/tokens", "admin", "createToken", tokens.create),
  route("DELETE /v1/tokens/:id", "admin", "revokeToken", tokens.revoke),
  route("POST /v1/read-tokens", "operate", "createReadToken", tokens.createReadToken),
  route("GET /v1/audit", "admin", "listAuditEntries", tokens.audit),
  route("GET /v1/me", "follow", "me", tokens.me),
  route("POST /v1/session", "public", "signIn", tokens.signIn),
  route("DELETE /v1/session", "public", "signOut", tokens.signOut),
];

function route(pattern: `${Route["method"]} /${string}`, access: Access, name: string, operation: Operation): Route {
  const [method, path] = pattern.split(" ") as [Route["method"], string];
  return { method, path, access, name, operation };
}
