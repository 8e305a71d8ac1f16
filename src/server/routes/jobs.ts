// Reads jobs with their attempts, steps, children, logs, artifacts and webhooks.
import { Readable } from "node:stream";
import { z } from "zod";
import type { LogLine, Reader } from "../../client/reader.ts";
import type { Job } from "../../db/calls/job.ts";
import { jobNotFound } from "../../errors.ts";
import { checkId } from "../../ids.ts";
import { withoutUndefined } from "../../validate.ts";
import type { Identity } from "../http/access.ts";
import { httpError } from "../http/problem.ts";
import { redactJob } from "../http/redact.ts";
import { type Call, operation } from "../operation.ts";
import * as schemas from "../schemas.ts";

/** Lines per query, and characters per response. */
const LOG_PAGE = 500;
const MAX_TEXT = 2_000_000;
const pageSize = z.coerce.number().int().min(1).max(200).optional();
const cursor = z.string().max(100).optional();
const text = z.string().min(1).max(200).optional();
const date = z
  .union([z.iso.datetime({ offset: true }), z.iso.date()])
  .transform((value) => new Date(value))
  .optional();

/** The job of the path. A job that the caller may not see is reported as not found. */
export async function findJob({ params, reader, caller }: Pick<Call, "params" | "reader" | "caller">): Promise<Job> {
  const id = checkId(params.id);
  const job = await reader.get(id);
  if (canSee(caller, job)) return job;
  throw jobNotFound(id);
}

function canSee(caller: Identity, job: Job): boolean {
  if (caller.tenant !== null && job.tenant !== caller.tenant) return false;
  if (caller.role !== "follower") return true;
  const { job: id, pipeline, key, tenant = null } = caller.scope ?? {};
  if (id !== undefined) return job.id === id;
  return key !== undefined && job.pipeline === pipeline && job.key === key && job.tenant === tenant;
}

function visibleTo(caller: Identity, job: Job): Job {
  return caller.role === "follower" ? redactJob(job) : job;
}

const Filters = z.strictObject({
  pipeline: text,
  pool: text,
  state: z.enum(schemas.jobStates).optional(),
  key: text,
  tenant: text,
  parent: z.uuid().optional(),
  since: date,
  until: date,
  text,
  limit: pageSize,
  cursor,
});

export const list = operation({
  summary: "Lists jobs, newest first",
  description:
    "A page may have fewer jobs than `limit` and still not be the last, because one request scans a bounded number of jobs. Continue with the cursor until it is null. Inputs and outputs over 8 KB are left out and named in `omitted`: read the job to get them. A read token for a key lists the jobs of that key.",
  query: Filters,
  uncounted: ({ text }) => text !== undefined,
  response: schemas.JobPage,
  async handle({ query, caller, reader, context }) {
    const filter = caller.role === "follower" ? filterForFollower(caller, query) : { ...query };
    if (caller.tenant !== null) filter.tenant = caller.tenant;
    const read = (from: Reader) => from.list({ ...withoutUndefined(filter), brief: true });
    const page = await (query.text === undefined ? read(reader) : context.search(caller, read));
    return { ...page, jobs: page.jobs.filter((job) => canSee(caller, job)).map((job) => visibleTo(caller, job)) };
  },
});

type JobFilters = z.output<typeof Filters>;

/** Fields that are hidden from a follower cannot be filtered by either. */
function filterForFollower(caller: Identity, { state, since, until, limit, cursor, ...rest }: JobFilters): JobFilters {
  const { pipeline, key, tenant } = caller.scope ?? {};
  if (pipeline === undefined || key === undefined) {
    throw httpError("FORBIDDEN", "This read token is for one job and cannot list jobs", { remedy: "Read that job" });
  }
  const other = Object.entries(rest).find(([name, value]) => value !== undefined && value !== { pipeline, key }[name]);
  if (other) {
    throw httpError("FORBIDDEN", `A read token cannot filter by ${other[0]}`, {
      field: other[0],
      remedy: "Filters of a read token: state, since, until, limit, cursor",
    });
  }
  return { pipeline, key, tenant, state, since, until, limit, cursor };
}

export const get = operation({
  summary: "Reads one job",
  response: schemas.Job,
  handle: async (call) => visibleTo(call.caller, await findJob(call)),
});

export const attempts = operation({
  summary: "All attempts of a job, oldest first",
  response: z.object({ attempts: z.array(schemas.Attempt) }),
  handle: async (call) => ({ attempts: await call.reader.attempts((await findJob(call)).id) }),
});

export const steps = operation({
  summary: "The steps of a job that have a checkpoint",
  query: z.strictObject({ outputs: z.enum(["true", "false"]).optional() }),
  response: z.object({ steps: z.array(schemas.Step) }),
  async handle(call) {
    // Outputs of steps are internal to the pipeline: only callers of the whole installation see them.
    const { role, tenant } = call.caller;
    const outputs = call.query.outputs === "true" && role !== "follower" && tenant === null;
    return { steps: await call.reader.steps((await findJob(call)).id, { outputs }) };
  },
});

export const children = operation({
  summary: "The jobs that a job spawned, newest first",
  query: z.strictObject({ state: z.enum(schemas.jobStates).optional(), limit: pageSize, cursor }),
  response: schemas.JobPage,
  async handle(call) {
    const { id } = await findJob(call);
    return call.reader.list({ ...withoutUndefined(call.query), parent: id, brief: true });
  },
});

export const logs = operation({
  summary: "The log lines of a job, in order",
  description:
    "Set `after` to `next` to read the next page; `next` is the seq of the last line of this page. A page may have fewer than `limit` lines if they are long; an empty page is the end.",
  query: z.strictObject({
    after: z
      .string()
      .regex(/^\d{1,18}$/)
      .optional(),
    limit: z.coerce.number().int().min(1).max(10_000).optional(),
  }),
  response: z.object({ lines: z.array(schemas.LogLine), next: z.string() }),
  async handle(call) {
    const { after = "0", limit = 1000 } = call.query;
    const { id } = await findJob(call);
    const lines: LogLine[] = [];
    // Read in pages, because lines can be long.
    for (let left = MAX_TEXT, done = false; !done && left > 0 && lines.length < limit; ) {
      const pageLimit = Math.min(LOG_PAGE, limit - lines.length);
      const page = await call.reader.logs(id, { after: lines.at(-1)?.seq ?? after, limit: pageLimit });
      lines.push(...page);
      done = page.length < pageLimit;
      for (const { message, data } of page) left -= message.length + (data ? JSON.stringify(data).length : 0);
    }
    return { lines, next: lines.at(-1)?.seq ?? after };
  },
});

export const artifacts = operation({
  summary: "The artifacts of a job",
  response: z.object({ artifacts: z.array(schemas.Artifact) }),
  handle: async (call) => ({ artifacts: await call.reader.artifacts((await findJob(call)).id) }),
});

export const artifact = operation({
  summary: "Downloads an artifact",
  description: "The content is checked against its hash: if they differ, the download is aborted.",
  response: "application/octet-stream",
  async handle(call) {
    const { id } = await findJob(call);
    const { name = "" } = call.params;
    const info = (await call.reader.artifacts(id)).find((artifact) => artifact.name === name);
    if (!info) {
      throw httpError("ARTIFACT_MISSING", "The job has no such artifact", {
        field: "name",
        remedy: "List its artifacts with GET /v1/jobs/:id/artifacts",
      });
    }
    if (!call.context.options.store) {
      throw httpError("NO_STORE", "This server has no artifact store, so it cannot send artifacts", {
        remedy:
          "Start it with the workers' store: createServer({ store: openStore(url) }), openStore of stillwake/worker",
      });
    }
    const content = await call.reader.download(id, name);
    // A browser must save it and never execute it, whatever its content type.
    return new Response(Readable.toWeb(content) as ReadableStream<Uint8Array>, {
      headers: {
        "content-type": "application/octet-stream",
        "content-length": String(info.size),
        "content-disposition": `attachment; filename*=UTF-8''${encodeURIComponent(name.split("/").at(-1)!).replaceAll(/['()*]/g, (char) => `%${char.charCodeAt(0).toString(16)}`)}`,
        "content-security-policy": "sandbox; default-src 'none'",
      },
    });
  },
});

export const webhooks = operation({
  summary: "The webhooks that were sent when the job ended",
  response: z.object({ webhooks: z.array(schemas.Webhook) }),
  async handle(call) {
    const { id } = await findJob(call);
    return { webhooks: await call.stillwake.webhooks.list({ job: id }) };
  },
});
