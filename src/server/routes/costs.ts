// What machines cost, and the budgets. A tenant's callers see their own part and nothing of the installation's: not what idles, not who else has a budget.
import { z } from "zod";
import * as shapes from "../cost-shapes.ts";
import { refusal } from "../http/problem.ts";
import { operation, withBody } from "../operation.ts";

const scopes = ["pool", "tenant"] as const;
const Done = z.object({ scope: z.enum(scopes), name: z.string() });

export const costs = operation({
  summary: "What machines cost in a month, or on days",
  about:
    "Days and months are those of UTC. Machines that still run count as far as they have come. A caller that belongs to a tenant is told of that tenant's part alone.",
  query: z.strictObject({
    month: z.string().max(20).optional(),
    since: z.string().max(40).optional(),
    until: z.string().max(40).optional(),
    by: z.enum(["pool", "pipeline", "tenant", "day"]).optional(),
  }),
  answer: shapes.CostReport,
  handle: async ({ stillwake, query, who }) => {
    const given = Object.entries(query).filter(([, value]) => value !== undefined);
    return stillwake.costs.of({ ...Object.fromEntries(given), ...(who.tenant !== null && { tenant: who.tenant }) });
  },
});

export const ofJob = operation({
  summary: "What a job has cost, machine by machine",
  about: "There are no parts for a job that ran on no machine of an orchestrator.",
  answer: shapes.JobCost,
  async handle({ stillwake, reading, params }) {
    // Whoever may not see the job learns nothing of it here.
    await reading.get(params.id!);
    return stillwake.costs.ofJob(params.id!);
  },
});

export const budgets = operation({
  summary: "The budgets, and how much of each is used",
  answer: z.object({ budgets: z.array(shapes.Budget) }),
  handle: async ({ stillwake }) => ({ budgets: await stillwake.costs.budgets() }),
});

export const budget = operation({
  summary: "The budget of a pool or a tenant",
  answer: shapes.Budget,
  async handle({ stillwake, params }) {
    const { scope, name } = checked(params);
    const found = await stillwake.costs.budget(scope, name);
    if (!found) {
      throw refusal("BUDGET_NOT_FOUND", `The ${scope} "${name}" has no budget`, {
        remedy: "Set one, or look which there are at /v1/budgets",
      });
    }
    return found;
  },
});

export const setBudget = operation({
  summary: "How much a pool or a tenant may cost in a day or a month",
  about:
    "Once it is used up the pool is paused, or the tenant's jobs wait, until the next day or month begins (UTC). What is under way is finished.",
  body: z.strictObject({ amount: z.number().min(0).max(1_000_000_000), period: z.enum(["day", "month"]).optional() }),
  answer: Done,
  record: withBody,
  async handle({ stillwake, params, body, who, before }) {
    const { scope, name } = checked(params);
    await before((await stillwake.costs.budget(scope, name)) ?? null);
    await stillwake.costs.setBudget(scope, name, body.amount, {
      by: who.name,
      ...(body.period && { period: body.period }),
    });
    return { scope, name };
  },
});

export const clearBudget = operation({
  summary: "Takes a budget away, and what it held goes on",
  answer: Done,
  async handle({ stillwake, params, before }) {
    const { scope, name } = checked(params);
    await before((await stillwake.costs.budget(scope, name)) ?? null);
    await stillwake.costs.clearBudget(scope, name);
    return { scope, name };
  },
});

function checked({ scope, name }: Record<string, string>): { scope: (typeof scopes)[number]; name: string } {
  if (scope === "pool" || scope === "tenant") return { scope, name: name! };
  throw refusal("INVALID_INPUT", `There are no budgets for a ${scope}`, {
    field: "scope",
    remedy: "Use pool or tenant",
  });
}
