// Jobs as they are read: one, many, and what hangs on them.
import { Readable } from "node:stream";
import { z } from "zod";
import type { Job } from "../../client/job.ts";
import type { LogLine } from "../../client/reader.ts";
import { JobNotFound } from "../../errors.ts";
import { checkId } from "../../ids.ts";
import type { Identity } from "../http/access.ts";
import { refusal } from "../http/problem.ts";
import { failureForGuest } from "../http/redact-failure.ts";
import { type Call, operation } from "../operation.ts";
import * as shapes from "../shapes.ts";

const LOG_PAGE = 500;
const MAX_TEXT = 2_000_000;
const pageSize = z.coerce.number().int().min(1).max(200).optional();
const cursor = z.string().max(100).optional();
const text = z.string().min(1).max(200).optional();
const when = z
  .union([z.iso.datetime({ offset: true }), z.iso.date()])
  .transform((given) => new Date(given))
  .optional();

/** The job of the path, if the caller may see it. One that is another's is answered as one that is not there. */
export async function jobOf({ params, reading, who }: Pick<Call, "params" | "reading" | "who">): Promise<Job> {
  const id = checkId(params.id);
  const job = await reading.get(id);
  if (sees(who, job)) return job;
  throw new JobNotFound(`Job ${id} does not exist`, {
    field: "id",
    remedy: "It was never enqueued here, or its retention is over and it was pruned",
  });
}

function sees(who: Identity, job: Job): boolean {
  if (who.tenant !== null && job.tenant !== who.tenant) return false;
  if (who.role !== "follower") return true;
  const { job: id, pipeline, key, tenant = null } = who.scope ?? {};
  if (id !== undefined) return job.id === id;
  return key !== undefined && job.pipeline === pipeline && job.key === key && job.tenant === tenant;
}

/** A customer sees how the job fares and what came of it, not what the house put in and where it runs. */
function shownTo(who: Identity, job: Job): Job {
  if (who.role !== "follower") return job;
  const hidden = { input: null, worker: null, idempotencyKey: null, tenant: null, cancel: null, pause: null };
  return { ...job, ...hidden, failure: failureForGuest(job.failure) };
}

const Filters = z.strictObject({
  pipeline: text,
  pool: text,
  state: z.enum(shapes.jobStates).optional(),
  key: text,
  tenant: text,
  parent: z.uuid().optional(),
  since: when,
  until: when,
  text,
  limit: pageSize,
  cursor,
});

export const list = operation({
  summary: "Lists jobs, newest first",
  about:
    "A page may hold fewer jobs than asked for and yet not be the last: one request looks through a bounded number of them. Read on with the cursor until it is null. Inputs and outputs of more than 8 KB are left out and named in `omitted`: read the job for them. A read token of a key lists the jobs of that key.",
  query: Filters,
  answer: shapes.JobPage,
  async handle({ query, who, reading }) {
    const filter = who.role === "follower" ? ofKey(who, query) : { ...query };
    if (who.tenant !== null) filter.tenant = who.tenant;
    const given = Object.entries(filter).filter(([, value]) => value !== undefined);
    const page = await reading.list({ ...Object.fromEntries(given), brief: true });
    return { ...page, jobs: page.jobs.filter((job) => sees(who, job)).map((job) => shownTo(who, job)) };
  },
});

type Asked = z.output<typeof Filters>;

/** What is hidden from a follower cannot be looked for either. */
function ofKey(who: Identity, { state, since, until, limit, cursor, ...rest }: Asked): Asked {
  const { pipeline, key, tenant } = who.scope ?? {};
  if (pipeline === undefined || key === undefined) {
    throw refusal("FORBIDDEN", "This read token opens one job, not a list", { remedy: "Read that job" });
  }
  const other = Object.entries(rest).find(([name, value]) => value !== undefined && value !== { pipeline, key }[name]);
  if (other) {
    throw refusal("FORBIDDEN", `A read token cannot look for ${other[0]}`, {
      field: other[0],
      remedy: "Filters of a read token: state, since, until, limit, cursor",
    });
  }
  return { pipeline, key, tenant, state, since, until, limit, cursor };
}

export const get = operation({
  summary: "Reads one job",
  answer: shapes.Job,
  handle: async (call) => shownTo(call.who, await jobOf(call)),
});

export const attempts = operation({
  summary: "Every try at a job, the first first",
  answer: z.object({ attempts: z.array(shapes.Attempt) }),
  handle: async (call) => ({ attempts: await call.reading.attempts((await jobOf(call)).id) }),
});

export const steps = operation({
  summary: "The steps of a job whose results are kept",
  query: z.strictObject({ outputs: z.enum(["true", "false"]).optional() }),
  answer: z.object({ steps: z.array(shapes.Step) }),
  async handle(call) {
    // What a step has kept is between the pipeline and itself: for those who run the installation.
    const { role, tenant } = call.who;
    const outputs = call.query.outputs === "true" && role !== "follower" && tenant === null;
    return { steps: await call.reading.steps((await jobOf(call)).id, { outputs }) };
  },
});

export const children = operation({
  summary: "The jobs that a job has spawned, newest first",
  query: z.strictObject({ state: z.enum(shapes.jobStates).optional(), limit: pageSize, cursor }),
  answer: shapes.JobPage,
  async handle(call) {
    const { id } = await jobOf(call);
    const given = Object.entries(call.query).filter(([, value]) => value !== undefined);
    return call.reading.list({ ...Object.fromEntries(given), parent: id, brief: true });
  },
});

export const logs = operation({
  summary: "The lines of a job in order",
  about:
    "Ask again with `after` set to `next` to read on; `next` is the place of the last line that was read. Where lines are long there may be fewer than `limit`; there are no more when there are none.",
  query: z.strictObject({
    after: z
      .string()
      .regex(/^\d{1,18}$/)
      .optional(),
    limit: z.coerce.number().int().min(1).max(10_000).optional(),
  }),
  answer: z.object({ lines: z.array(shapes.LogLine), next: z.string() }),
  async handle(call) {
    const { after = "0", limit = 1000 } = call.query;
    const { id } = await jobOf(call);
    const lines: LogLine[] = [];
    // Page by page: lines may be long, and one answer holds no more than this many characters of them.
    for (let left = MAX_TEXT, over = false; !over && left > 0 && lines.length < limit; ) {
      const most = Math.min(LOG_PAGE, limit - lines.length);
      const page = await call.reading.logs(id, { after: lines.at(-1)?.seq ?? after, limit: most });
      lines.push(...page);
      over = page.length < most;
      for (const { message, data } of page) left -= message.length + (data ? JSON.stringify(data).length : 0);
    }
    return { lines, next: lines.at(-1)?.seq ?? after };
  },
});

export const artifacts = operation({
  summary: "The files a job has made",
  answer: z.object({ artifacts: z.array(shapes.Artifact) }),
  handle: async (call) => ({ artifacts: await call.reading.artifacts((await jobOf(call)).id) }),
});

export const artifact = operation({
  summary: "One of its files, as a download",
  about: "The content is compared with its hash on the way: a download that breaks off is not whole.",
  answer: "application/octet-stream",
  async handle(call) {
    const { id } = await jobOf(call);
    const { name = "" } = call.params;
    const info = (await call.reading.artifacts(id)).find((one) => one.name === name);
    if (!info) {
      throw refusal("ARTIFACT_MISSING", "The job has no such artifact", {
        field: "name",
        remedy: "See /artifacts for those it has",
      });
    }
    const content = await call.reading.download(id, name);
    // A browser saves it and runs nothing of it, whatever it says it is.
    return new Response(Readable.toWeb(content) as ReadableStream<Uint8Array>, {
      headers: {
        "content-type": "application/octet-stream",
        "content-length": String(info.size),
        "content-disposition": `attachment; filename*=UTF-8''${encodeURIComponent(name.split("/").at(-1)!).replaceAll(/['()*]/g, (mark) => `%${mark.charCodeAt(0).toString(16)}`)}`,
        "content-security-policy": "sandbox; default-src 'none'",
      },
    });
  },
});

export const webhooks = operation({
  summary: "What was told to whom when the job ended",
  answer: z.object({ webhooks: z.array(shapes.Webhook) }),
  async handle(call) {
    const { id } = await jobOf(call);
    return { webhooks: await call.stillwake.webhooks.list({ job: id }) };
  },
});
