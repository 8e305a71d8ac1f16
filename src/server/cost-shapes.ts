// The nouns of costs and budgets as they stand in JSON: those of src/client/costs.ts.
import { z } from "zod";
import { moment, noun } from "./shapes.ts";

const count = z.int().min(0);

const sum = { machines: count, jobs: count, busySeconds: z.number(), idleSeconds: z.number(), amount: z.number() };

export const CostReport = noun("CostReport", {
  since: moment,
  until: moment,
  by: z.enum(["pool", "pipeline", "tenant", "day"]),
  total: z.object(sum),
  rows: z.array(z.object({ name: z.string().nullable(), ...sum })),
  idlePools: z.array(
    z.object({ pool: z.string(), machines: count, diskGb: z.number().nullable(), perMonth: z.number() }),
  ),
});

export const JobCost = noun("JobCost", {
  amount: z.number(),
  provisional: z.boolean(),
  parts: z.array(
    z.object({
      machine: z.string(),
      pool: z.string(),
      provider: z.string(),
      size: z.string().nullable(),
      region: z.string().nullable(),
      epoch: z.string().regex(/^\d+$/),
      claimedAt: moment,
      workedSeconds: z.number(),
      busySeconds: z.number(),
      idleSeconds: z.number(),
      pricePerSecond: z.number(),
      amount: z.number(),
      prices: z.string().nullable(),
      provisional: z.boolean(),
    }),
  ),
});

export const Budget = noun("Budget", {
  scope: z.enum(["pool", "tenant"]),
  name: z.string(),
  amount: z.number(),
  period: z.enum(["day", "month"]),
  spent: z.number(),
  resetsAt: moment,
  held: z.boolean(),
  updatedAt: moment,
  updatedBy: z.string().nullable(),
});
