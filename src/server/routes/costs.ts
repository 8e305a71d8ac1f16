// Machine costs and budgets. Callers of a tenant see only the tenant's share: neither idle costs nor budgets of others.
import { z } from "zod";
import { withoutUndefined } from "../../validate.ts";
import { httpError } from "../http/problem.ts";
import { mergeBody, operation } from "../operation.ts";
import * as schemas from "../schemas.ts";

const scopes = ["pool", "tenant"] as const;
const BudgetName = z.object({ scope: z.enum(scopes), name: z.string() });

export const costs = operation({
  summary: "Machine costs of a month, or of a range of days",
  description:
    "Days and months are in UTC. Running machines count up to now. Callers of a tenant see only that tenant's share.",
  query: z.strictObject({
    month: z.string().max(20).optional(),
    since: z.string().max(40).optional(),
    until: z.string().max(40).optional(),
    by: z.enum(["pool", "pipeline", "tenant", "day"]).optional(),
  }),
  response: schemas.CostReport,
  handle: async ({ stillwake, query, caller }) => {
    return stillwake.costs.of({ ...withoutUndefined(query), ...(caller.tenant !== null && { tenant: caller.tenant }) });
  },
});

export const ofJob = operation({
  summary: "The cost of a job, by machine",
  description: "There are no parts for a job that ran on no machine of an orchestrator.",
  response: schemas.JobCost,
  async handle({ stillwake, reader, params }) {
    // Throws JobNotFound if the caller may not see the job.
    await reader.get(params.id!);
    return stillwake.costs.ofJob(params.id!);
  },
});

export const budgets = operation({
  summary: "All budgets with their usage",
  response: z.object({ budgets: z.array(schemas.Budget) }),
  handle: async ({ stillwake }) => ({ budgets: await stillwake.costs.budgets() }),
});

export const budget = operation({
  summary: "The budget of a pool or a tenant",
  response: schemas.Budget,
  async handle({ stillwake, params }) {
    const { scope, name } = checkBudget(params);
    const budget = await stillwake.costs.budget(scope, name);
    if (!budget) {
      throw httpError("BUDGET_NOT_FOUND", `The ${scope} "${name}" has no budget`, {
        remedy: "Set one, or list them with GET /v1/budgets",
      });
    }
    return budget;
  },
});

export const setBudget = operation({
  summary: "Sets the budget of a pool or a tenant, per day or month",
  description:
    "When it is exhausted the pool is paused, or the tenant's jobs wait, until the next day or month (UTC). Running jobs finish.",
  body: z.strictObject({ amount: z.number().min(0).max(1_000_000_000), period: z.enum(["day", "month"]).optional() }),
  response: BudgetName,
  audit: mergeBody,
  async handle({ stillwake, params, body, caller, recordBefore }) {
    const { scope, name } = checkBudget(params);
    await recordBefore((await stillwake.costs.budget(scope, name)) ?? null);
    await stillwake.costs.setBudget(scope, name, body.amount, {
      by: caller.name,
      ...(body.period && { period: body.period }),
    });
    return { scope, name };
  },
});

export const clearBudget = operation({
  summary: "Removes a budget; jobs that waited for it continue",
  response: BudgetName,
  async handle({ stillwake, params, recordBefore }) {
    const { scope, name } = checkBudget(params);
    await recordBefore((await stillwake.costs.budget(scope, name)) ?? null);
    await stillwake.costs.clearBudget(scope, name);
    return { scope, name };
  },
});

function checkBudget({ scope, name }: Record<string, string>): { scope: (typeof scopes)[number]; name: string } {
  if (scope === "pool" || scope === "tenant") return { scope, name: name! };
  throw httpError("INVALID_INPUT", `A ${scope} cannot have a budget`, {
    field: "scope",
    remedy: "Use pool or tenant",
  });
}
