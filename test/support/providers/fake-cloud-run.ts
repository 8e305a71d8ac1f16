// Cloud Run's API as far as we use it: job resources, and executions that are pending, run and end, with quotas, pages and operations. An execution may have a
// body, such as a real worker, that begins when it runs and whose end is its own. Beside it, the two places that give out Google's tokens.
import { createVerify, generateKeyPairSync, randomBytes, randomUUID } from "node:crypto";
import { once } from "node:events";
import http from "node:http";
import type { AddressInfo } from "node:net";
import type { Body, End } from "./fake-fly.ts";
import { type Call, type Fake, type Reply, startFake } from "./fake-provider-api.ts";
import { cloudRunDescription } from "./schemas/cloud-run.ts";

/**
 *   :run → pending → running → succeeded | failed        :cancel → cancelling → cancelled        half: stays pending
 */
interface FakeExecution {
  /** As "jobs/<job>/executions/<execution>". */
  id: string;
  job: string;
  /** What its environment calls it. */
  machine: string;
  state: "pending" | "running" | "cancelling" | "succeeded" | "failed" | "cancelled";
  env: Record<string, string>;
  template: Template;
  createdAt: number;
  startedAt?: number;
  endedAt?: number;
  end?: End & { message?: string; signal?: number };
  labels: Record<string, string>;
  body?: Body;
}

interface Template {
  containers: { image: string; env?: { name: string; value?: string }[]; resources?: object }[];
  maxRetries?: number;
  timeout?: string;
}

interface FakeJob {
  name: string;
  labels: Record<string, string>;
  template: { labels?: Record<string, string>; taskCount: number; template: Template };
  updates: number;
}

export interface FakeCloudRunOptions {
  project?: string;
  region?: string;
  now?(): number;
  /** Begins what runs in an execution that has started. */
  onStart?(execution: FakeExecution): Body | undefined;
  /** See provider-fake.ts. */
  onStuck?(): void;
}

export interface FakeCloudRun extends Fake {
  project: string;
  region: string;
  /** Tokens that are let in. */
  tokens: Set<string>;
  token: string;
  jobs: Map<string, FakeJob>;
  /** Newest first. */
  executions: FakeExecution[];
  /** How many may be there at once. */
  quota: number;
  /** Executions stay pending until begin(). */
  hold: boolean;
  alive(): FakeExecution[];
  /** The only one of this name. */
  machine(name: string): FakeExecution;
  /** One that somebody else has run. */
  add(job: string, env: Record<string, string>, state?: FakeExecution["state"]): FakeExecution;
  begin(name: string): void;
  /** What runs in it ends. */
  exit(name: string, end: FakeExecution["end"] & object): void;
}

export async function startFakeCloudRun(options: FakeCloudRunOptions = {}): Promise<FakeCloudRun> {
  const { project = "our-project", region = "us-central1", now = Date.now, onStart } = options;
  const at = `projects/${project}/locations/${region}`;
  const jobs = new Map<string, FakeJob>();
  const executions: FakeExecution[] = [];
  const operations = new Map<string, () => object>();
  const token = randomBytes(12).toString("hex");
  const error = (status: number, message: string) => ({
    error: { code: status, message, status: words[status] ?? "UNKNOWN" },
  });
  const refuse = (status: number, message: string): Reply => ({ status, body: error(status, message) });
  const unfinished = (one: FakeExecution) => ["pending", "running", "cancelling"].includes(one.state);

  function begin(one: FakeExecution): void {
    if (one.state !== "pending") return;
    one.state = "running";
    one.startedAt = now();
    const body = onStart?.(one);
    if (!body) return;
    one.body = body;
    void body.exited.then((end) => finish(one, end));
  }

  function finish(one: FakeExecution, end: FakeExecution["end"] & object): void {
    if (!unfinished(one)) return;
    one.state = one.state === "cancelling" ? "cancelled" : end.code === 0 ? "succeeded" : "failed";
    one.end = end;
    one.startedAt ??= now();
    one.endedAt = now();
  }

  function make(job: string, env: Record<string, string>, half = false): FakeExecution {
    const template: Partial<FakeJob["template"]> = jobs.get(job)?.template ?? {};
    const task: Template = template.template ?? { containers: [{ image: "someone/else:1" }] };
    const [first, ...rest] = task.containers;
    const kept = (first!.env ?? []).filter(({ name }) => env[name] === undefined);
    const one: FakeExecution = {
      id: `jobs/${job}/executions/${job.slice(0, 50)}-${randomBytes(3).toString("hex")}`,
      job,
      machine: env.STILLWAKE_MACHINE ?? "",
      state: "pending",
      env,
      template: {
        ...task,
        containers: [
          { ...first!, env: [...kept, ...Object.entries(env).map(([name, value]) => ({ name, value }))] },
          ...rest,
        ],
      },
      createdAt: now(),
      labels: { ...template.labels },
    };
    executions.unshift(one);
    if (!half && !fake.hold) begin(one);
    return one;
  }

  const answered = (found: FakeExecution | undefined, reply: (one: FakeExecution) => Reply): Reply =>
    found ? reply(found) : refuse(404, "Resource not found");
  const executionOf = ({ params: { job, execution } }: Call) =>
    executions.find(({ id }) => id === `jobs/${job}/executions/${execution}`);
  const operation = (state: () => object): Reply => {
    const name = `${at}/operations/${randomUUID()}`;
    operations.set(name, state);
    return { status: 200, body: { name, ...state() } };
  };
  const page = (call: Call, of: string, items: object[]): Reply => {
    const from = Number(call.query.get("pageToken") ?? 0);
    const to = from + Math.min(Number(call.query.get("pageSize") ?? 100), 100);
    return {
      status: 200,
      body: { [of]: items.slice(from, to), ...(to < items.length && { nextPageToken: String(to) }) },
    };
  };

  const base = await startFake({
    description: cloudRunDescription,
    error,
    ...(options.now && { now: options.now }),
    ...(options.onStuck && { onStuck: options.onStuck }),
    admit: ({ headers, params }) => {
      if (!fake.tokens.has((headers.authorization ?? "").replace("Bearer ", "")))
        return refuse(401, "Request had invalid authentication credentials");
      if (params.project !== project || params.location !== region)
        return refuse(403, "Permission denied on the location");
      return undefined;
    },
    handlers: {
      listJobs: (call) =>
        page(
          call,
          "jobs",
          [...jobs.values()].map((job) => jobResource(at, job)),
        ),
      getJob: ({ params: { job } }) => {
        const found = jobs.get(job!);
        return found ? { status: 200, body: jobResource(at, found) } : refuse(404, `Job ${job} could not be found`);
      },
      patchJob: ({ params: { job }, body, query }) => {
        const there = jobs.get(job!);
        if (!there && query.get("allowMissing") !== "true") return refuse(404, `Job ${job} could not be found`);
        const { labels, template } = body as unknown as FakeJob;
        jobs.set(job!, { name: job!, labels, template, updates: (there?.updates ?? 0) + 1 });
        // It takes a moment: it is done when it is asked for.
        let asked = 0;
        return operation(() => ({ done: asked++ > 0 }));
      },
      runJob: (call) => {
        const { job } = call.params;
        if (!jobs.has(job!)) return refuse(404, `Job ${job} could not be found`);
        if (executions.filter(unfinished).length >= fake.quota)
          return refuse(429, "Quota exceeded for the number of running executions in this region");
        const { overrides } = call.body as {
          overrides: { containerOverrides: { env: { name: string; value: string }[] }[] };
        };
        const env = Object.fromEntries(overrides.containerOverrides[0]!.env.map(({ name, value }) => [name, value]));
        const one = make(job!, env, call.half);
        return operation(() => ({ done: !unfinished(one), metadata: { "@type": "execution", ...resource(at, one) } }));
      },
      listExecutions: (call) =>
        page(
          call,
          "executions",
          executions.filter(({ job }) => job === call.params.job).map((one) => resource(at, one)),
        ),
      getExecution: (call) => answered(executionOf(call), (one) => ({ status: 200, body: resource(at, one) })),
      cancelExecution: (call) =>
        answered(executionOf(call), (one) => {
          if (!unfinished(one)) return refuse(400, "Execution has finished");
          one.state = "cancelling";
          if (one.body) one.body.kill("SIGTERM");
          else if (!fake.hold) finish(one, { code: 0 });
          return operation(() => ({
            done: !unfinished(one),
            metadata: { "@type": "execution", ...resource(at, one) },
          }));
        }),
      listTasks: (call) =>
        answered(executionOf(call), (one) =>
          page(call, "tasks", [{ name: `${at}/${one.id}/tasks/t0`, index: 0, ...result(one) }]),
        ),
      getOperation: ({ params }) => {
        const name = `${at}/operations/${params.operation}`;
        const state = operations.get(name);
        return state ? { status: 200, body: { name, ...state() } } : refuse(404, "Operation not found");
      },
    },
  });

  const closeBase = base.close;
  const fake: FakeCloudRun = Object.assign(base, {
    async close() {
      for (const { body } of executions) body?.kill("SIGKILL");
      await closeBase();
    },
    project,
    region,
    token,
    tokens: new Set([token]),
    jobs,
    executions,
    quota: 1000,
    hold: false,
    alive: () => executions.filter(unfinished),
    machine: (name: string) => {
      const found = executions.filter(({ machine }) => machine === name);
      if (found.length !== 1) throw new Error(`There are ${found.length} executions called ${name}`);
      return found[0]!;
    },
    add: (job: string, env: Record<string, string>, state: FakeExecution["state"] = "running") => {
      const one = make(job, env, true);
      return Object.assign(one, { state, startedAt: now() });
    },
    begin: (name: string) => executions.filter(({ machine }) => machine === name).forEach(begin),
    exit: (name: string, end: FakeExecution["end"] & object) => {
      const one = executions.find((execution) => execution.machine === name && unfinished(execution))!;
      one.body?.kill("SIGKILL");
      finish(one, end);
    },
  });
  return fake;
}

const words: Record<number, string> = {
  400: "FAILED_PRECONDITION",
  401: "UNAUTHENTICATED",
  403: "PERMISSION_DENIED",
  404: "NOT_FOUND",
  429: "RESOURCE_EXHAUSTED",
  500: "INTERNAL",
  503: "UNAVAILABLE",
};

function jobResource(at: string, { name, labels, template }: FakeJob): object {
  return { name: `${at}/jobs/${name}`, labels, template };
}

function resource(at: string, one: FakeExecution): object {
  const stamp = (ms: number) => new Date(ms).toISOString();
  const { state, end } = one;
  const over = { succeeded: "CONDITION_SUCCEEDED", failed: "CONDITION_FAILED", cancelled: "CONDITION_FAILED" }[
    state as string
  ];
  const reason = { cancelled: "CANCELLED", cancelling: "CANCELLING", failed: "NON_ZERO_EXIT_CODE" }[state as string];
  return {
    name: `${at}/${one.id}`,
    uid: one.id.slice(-6),
    job: one.job,
    labels: one.labels,
    createTime: stamp(one.createdAt),
    ...(one.startedAt !== undefined && { startTime: stamp(one.startedAt) }),
    ...(one.endedAt !== undefined && { completionTime: stamp(one.endedAt) }),
    taskCount: 1,
    // Zeros are left out, as everywhere in this API.
    ...(state === "running" && { runningCount: 1 }),
    ...(state === "succeeded" && { succeededCount: 1 }),
    ...(state === "failed" && { failedCount: 1 }),
    ...(state === "cancelled" && { cancelledCount: 1 }),
    conditions: [
      {
        type: "Completed",
        state: over ?? "CONDITION_RECONCILING",
        lastTransitionTime: stamp(one.endedAt ?? one.startedAt ?? one.createdAt),
        ...(reason && { executionReason: reason }),
        ...(state === "failed" && { message: said(one) }),
      },
      { type: "Started", state: one.startedAt === undefined ? "CONDITION_PENDING" : "CONDITION_SUCCEEDED" },
    ],
    template: one.template,
  };

  function said({ end: how }: FakeExecution): string {
    if (end?.oom) return "Task t0 failed with message: Memory limit of 2048 MiB exceeded with 2051 MiB used.";
    return `Task t0 failed with message: ${how?.message ?? "The container exited with an error."}`;
  }
}

function result({ end }: FakeExecution): object {
  if (!end) return {};
  const { code, signal, message } = end;
  return {
    lastAttemptResult: {
      ...(signal ? { termSignal: signal } : { exitCode: code }),
      ...(message && { status: { code: 2, message } }),
    },
  };
}

export interface FakeTokens {
  url: string;
  /** What a service account's key file has in it. */
  key: { type: string; client_email: string; private_key: string; private_key_id: string; token_uri: string };
  /** Every token it gave, and how it was asked. */
  given: { token: string; by: "key" | "user" | "metadata" }[];
  /** Answers this to the next calls. */
  fail(...statuses: number[]): void;
  close(): Promise<void>;
}

/** The token endpoint and the metadata server in one. A statement is believed only if the key has signed it. */
export async function startFakeTokens(options: {
  onToken(token: string): void;
  seconds?: number;
}): Promise<FakeTokens> {
  const { publicKey, privateKey } = generateKeyPairSync("rsa", { modulusLength: 2048 });
  const failures: number[] = [];
  const server = http.createServer((request, response) => {
    let text = "";
    request.setEncoding("utf8").on("data", (data) => (text += data));
    request.on("end", () => {
      const by =
        request.url === "/token" ? bySigned(text) : request.headers["metadata-flavor"] === "Google" && "metadata";
      const status = failures.shift() ?? (by ? 200 : 400);
      const token = randomBytes(8).toString("hex");
      if (status === 200 && by) {
        tokens.given.push({ token, by });
        options.onToken(token);
      }
      response.writeHead(status, { "content-type": "application/json" });
      response.end(
        JSON.stringify(
          status === 200
            ? { access_token: token, expires_in: options.seconds ?? 3600, token_type: "Bearer" }
            : { error: "invalid_grant" },
        ),
      );
    });
  });
  function bySigned(text: string): "key" | "user" | undefined {
    const form = new URLSearchParams(text);
    if (form.get("grant_type") === "refresh_token") return form.get("refresh_token") === "refresh" ? "user" : undefined;
    const [header, claims, signature] = (form.get("assertion") ?? "").split(".");
    const verified = createVerify("RSA-SHA256")
      .update(`${header}.${claims}`)
      .verify(publicKey, Buffer.from(signature ?? "", "base64url"));
    const { iss, aud, exp, iat, scope } = JSON.parse(Buffer.from(claims ?? "", "base64url").toString() || "{}");
    const fits = iss === tokens.key.client_email && aud === tokens.key.token_uri && exp - iat === 3600;
    return verified && fits && scope === "https://www.googleapis.com/auth/cloud-platform" ? "key" : undefined;
  }
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  const url = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
  const tokens: FakeTokens = {
    url,
    key: {
      type: "service_account",
      client_email: "orchestrator@our-project.iam.gserviceaccount.com",
      private_key: privateKey.export({ type: "pkcs8", format: "pem" }) as string,
      private_key_id: "k1",
      token_uri: `${url}/token`,
    },
    given: [],
    fail: (...statuses) => void failures.push(...statuses),
    close: async () => {
      server.closeAllConnections();
      await new Promise((resolve) => server.close(resolve));
    },
  };
  return tokens;
}
