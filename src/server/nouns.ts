// The nouns of the API as types, for programs that speak HTTP to it: what is sent and answered, made of the shapes that check it.
import type { z } from "zod";
import type * as costs from "./cost-shapes.ts";
import type * as shapes from "./shapes.ts";

export type Act = z.infer<typeof shapes.Act>;
export type Artifact = z.infer<typeof shapes.Artifact>;
export type Attempt = z.infer<typeof shapes.Attempt>;
export type Breaker = z.infer<typeof shapes.Breaker>;
export type Budget = z.infer<typeof costs.Budget>;
export type CostReport = z.infer<typeof costs.CostReport>;
export type Endpoint = z.infer<typeof shapes.Endpoint>;
export type Job = z.infer<typeof shapes.Job>;
export type JobCost = z.infer<typeof costs.JobCost>;
export type JobPage = z.infer<typeof shapes.JobPage>;
export type Limit = z.infer<typeof shapes.Limit>;
export type LogLine = z.infer<typeof shapes.LogLine>;
export type Machine = z.infer<typeof shapes.Machine>;
export type Pipeline = z.infer<typeof shapes.Pipeline>;
export type Pool = z.infer<typeof shapes.Pool>;
export type Problem = z.infer<typeof shapes.Problem>;
export type Schedule = z.infer<typeof shapes.Schedule>;
export type Slot = z.infer<typeof shapes.Slot>;
export type Stats = z.infer<typeof shapes.Stats>;
export type Step = z.infer<typeof shapes.Step>;
export type Token = z.infer<typeof shapes.Token>;
export type Webhook = z.infer<typeof shapes.Webhook>;
