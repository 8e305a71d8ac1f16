// Every route of the server on one screen: method, path, who may, its name, what it does. A route without a word on who may does not compile.
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
  at("GET /health", "public", "health", system.health),
  at("GET /metrics", "measure", "metrics", system.metrics),
  at("GET /openapi.json", "public", "openapi", system.openapi),
  at("GET /docs", "public", "docs", system.docs),

  at("POST /v1/jobs", "operate", "enqueue", control.enqueue),
  at("GET /v1/jobs", "follow", "listJobs", jobs.list),
  at("POST /v1/jobs/cancel", "operate", "cancelJobs", control.cancelMany),
  at("POST /v1/jobs/retry", "operate", "retryJobs", control.retryMany),
  at("GET /v1/jobs/:id", "follow", "getJob", jobs.get),
  at("GET /v1/jobs/:id/attempts", "read", "listAttempts", jobs.attempts),
  at("GET /v1/jobs/:id/steps", "follow", "listSteps", jobs.steps),
  at("GET /v1/jobs/:id/children", "read", "listChildren", jobs.children),
  at("GET /v1/jobs/:id/logs", "follow", "listLogs", jobs.logs),
  at("GET /v1/jobs/:id/stream", "follow", "followJob", follow),
  at("GET /v1/jobs/:id/artifacts", "follow", "listArtifacts", jobs.artifacts),
  at("GET /v1/jobs/:id/artifacts/:name{.+}", "follow", "getArtifact", jobs.artifact),
  at("GET /v1/jobs/:id/cost", "read", "getJobCost", costs.ofJob),
  at("GET /v1/jobs/:id/webhooks", "oversee", "listJobWebhooks", jobs.webhooks),
  at("POST /v1/jobs/:id/cancel", "operate", "cancelJob", control.cancel),
  at("POST /v1/jobs/:id/retry", "operate", "retryJob", control.retry),
  at("POST /v1/jobs/:id/pause", "operate", "pauseJob", control.pause),
  at("POST /v1/jobs/:id/resume", "operate", "resumeJob", control.resume),
  at("POST /v1/jobs/:id/signal", "operate", "signalJob", control.signal),

  at("GET /v1/pipelines", "read", "listPipelines", flow.pipelines),
  at("GET /v1/pipelines/:name", "read", "getPipeline", flow.pipeline),
  at("GET /v1/pools", "oversee", "listPools", flow.pools),
  at("POST /v1/pools/:name/pause", "manage", "pausePool", flow.pausePool),
  at("POST /v1/pools/:name/resume", "manage", "resumePool", flow.resumePool),
  at("POST /v1/pools/:name/cap", "manage", "capPool", flow.capPool),
  at("GET /v1/machines", "oversee", "listMachines", fleet.machines),
  at("POST /v1/poke", "tend", "poke", fleet.poke),
  at("GET /v1/costs", "read", "getCosts", costs.costs),
  at("GET /v1/budgets", "oversee", "listBudgets", costs.budgets),
  at("GET /v1/budgets/:scope/:name", "oversee", "getBudget", costs.budget),
  at("PUT /v1/budgets/:scope/:name", "admin", "setBudget", costs.setBudget),
  at("DELETE /v1/budgets/:scope/:name", "admin", "clearBudget", costs.clearBudget),
  at("GET /v1/limits", "oversee", "listLimits", flow.limits),
  at("POST /v1/limits/:name/reset", "manage", "resetLimit", flow.resetLimit),
  at("GET /v1/breakers", "oversee", "listBreakers", flow.breakers),
  at("POST /v1/breakers/:name/open", "manage", "openBreaker", flow.openBreaker),
  at("POST /v1/breakers/:name/close", "manage", "closeBreaker", flow.closeBreaker),

  at("GET /v1/schedules", "oversee", "listSchedules", schedules.list),
  at("GET /v1/schedules/:name/upcoming", "oversee", "listSlots", schedules.upcoming),
  at("PUT /v1/schedules/:name", "manage", "setSchedule", schedules.set),
  at("DELETE /v1/schedules/:name", "manage", "removeSchedule", schedules.remove),
  at("POST /v1/schedules/:name/pause", "manage", "pauseSchedule", schedules.pause),
  at("POST /v1/schedules/:name/resume", "manage", "resumeSchedule", schedules.resume),

  at("GET /v1/endpoints", "oversee", "listEndpoints", webhooks.endpoints),
  at("PUT /v1/endpoints/:name", "admin", "setEndpoint", webhooks.setEndpoint),
  at("POST /v1/endpoints/:name/rotate", "admin", "rotateSecret", webhooks.rotate),
  at("POST /v1/endpoints/:name/disable", "manage", "disableEndpoint", webhooks.disable),
  at("POST /v1/endpoints/:name/enable", "manage", "enableEndpoint", webhooks.enable),
  at("GET /v1/webhooks", "oversee", "listWebhooks", webhooks.list),
  at("GET /v1/webhooks/:id", "oversee", "getWebhook", webhooks.get),
  at("POST /v1/webhooks/:id/resend", "manage", "resendWebhook", webhooks.resend),

  at("GET /v1/health", "measure", "deepHealth", system.deepHealth),
  at("GET /v1/stats", "oversee", "stats", system.stats),
  at("POST /v1/watchdog", "tend", "watchdog", system.watchdog),
  at("GET /v1/tokens", "admin", "listTokens", tokens.list),
  at("POST /v1/tokens", "admin", "createToken", tokens.create),
  at("DELETE /v1/tokens/:id", "admin", "revokeToken", tokens.revoke),
  at("POST /v1/read-tokens", "operate", "createReadToken", tokens.createReadToken),
  at("GET /v1/audit", "admin", "listActs", tokens.audit),
  at("GET /v1/me", "follow", "me", tokens.me),
  at("POST /v1/session", "public", "signIn", tokens.signIn),
  at("DELETE /v1/session", "public", "signOut", tokens.signOut),
];

function at(where: `${Route["method"]} /${string}`, access: Access, name: string, operation: Operation): Route {
  const [method, path] = where.split(" ") as [Route["method"], string];
  return { method, path, access, name, operation };
}
