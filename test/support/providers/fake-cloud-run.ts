// A fake of Cloud Run's API: job resources and executions, with quotas, pages and operations. An execution may have a process,
// such as a real worker, that starts and exits with it. Also a fake of Google's token endpoint and metadata server.
import { createVerify, generateKeyPairSync, randomBytes, randomUUID } from "node:crypto";
import { once } from "node:events";
import http from "node:http";
import type { AddressInfo } from "node:net";
import {
  type Call,
  type Fake,
  type MachineProcess,
  type ProcessExit,
  type Reply,
  startFake,
} from "./fake-provider-api.ts";
import { cloudRunDescription } from "./schemas/cloud-run.ts";

/**   :run → pending → running → succeeded | failed        :cancel → cancelling → cancelled        half: stays pending */
interface FakeExecution {
  /** "jobs/<job>/executions/<execution>". */
  id: string;
  job: string;
  /** STILLWAKE_MACHINE of its environment. */
  machine: string;
  state: "pending" | "running" | "cancelling" | "succeeded" | "failed" | "cancelled";
  env: Record<string, string>;
  template: Template;
  createdAt: number;
  startedAt?: number;
  endedAt?: number;
  end?: ProcessExit & { message?: string; signal?: number };
  labels: Record<string, string>;
  process?: MachineProcess;
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
  /** Starts the process of an execution. */
  onStart?(execution: FakeExecution): MachineProcess | undefined;
  /** See FakeOptions. */
  onNoResponse?(): void;
}

export interface FakeCloudRun extends Fake {
  project: string;
  region: string;
  /** Valid tokens. */
  tokens: Set<string>;
  token: string;
  jobs: Map<string, FakeJob>;
  /** Newest first. */
  executions: FakeExecution[];
  /** Maximum number of unfinished executions. */
  quota: number;
  /** Executions stay pending until startExecution(). */
  holdStarts: boolean;
  alive(): FakeExecution[];
  /** The execution of this machine; throws if there is not exactly one. */
  machine(name: string): FakeExecution;
  /** One that somebody else has run. */
  add(job: string, env: Record<string, string>, state?: FakeExecution["state"]): FakeExecution;
  startExecution(name: string): void;
  /** Makes its process exit. */
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
    error: { code: status, message, status: STATUS_NAMES[status] ?? "UNKNOWN" },
  });
  const reject = (status: number, message: string): Reply => ({ status, body: error(status, message) });
  const unfinished = (execution: FakeExecution) => ["pending", "running", "cancelling"].includes(execution.state);

  function start(execution: FakeExecution): void {
    if (execution.state !== "pending") return;
    execution.state = "running";
    execution.startedAt = now();
    const body = onStart?.(execution);
    if (!body) return;
    execution.process = body;
    void body.exited.then((end) => finish(execution, end));
  }

  function finish(execution: FakeExecution, end: FakeExecution["end"] & object): void {
    if (!unfinished(execution)) return;
    execution.state = execution.state === "cancelling" ? "cancelled" : end.code === 0 ? "succeeded" : "failed";
    execution.end = end;
    execution.startedAt ??= now();
    execution.endedAt = now();
  }

  function createExecution(job: string, env: Record<string, string>, half = false): FakeExecution {
    const template: Partial<FakeJob["template"]> = jobs.get(job)?.template ?? {};
    const task: Template = template.template ?? { containers: [{ image: "someone/else:1" }] };
    const [first, ...rest] = task.containers;
    const inherited = (first!.env ?? []).filter(({ name }) => env[name] === undefined);
    const execution: FakeExecution = {
      id: `jobs/${job}/executions/${job.slice(0, 50)}-${randomBytes(3).toString("hex")}`,
      job,
      machine: env.STILLWAKE_MACHINE ?? "",
      state: "pending",
      env,
      template: {
        ...task,
        containers: [
          { ...first!, env: [...inherited, ...Object.entries(env).map(([name, value]) => ({ name, value }))] },
          ...rest,
        ],
      },
      createdAt: now(),
      labels: { ...template.labels },
    };
    executions.unshift(execution);
    if (!half && !fake.holdStarts) start(execution);
    return execution;
  }

  const replyTo = (found: FakeExecution | undefined, reply: (execution: FakeExecution) => Reply): Reply =>
    found ? reply(found) : reject(404, "Resource not found");
  const executionOf = ({ params }: Call) =>
    executions.find(({ id }) => id === `jobs/${params.job}/executions/${params.execution}`);
  const operation = (state: () => object): Reply => {
    const name = `${at}/operations/${randomUUID()}`;
    operations.set(name, state);
    return { status: 200, body: { name, ...state() } };
  };
  const page = (call: Call, field: string, items: object[]): Reply => {
    const from = Number(call.query.get("pageToken") ?? 0);
    const to = from + Math.min(Number(call.query.get("pageSize") ?? 100), 100);
    return {
      status: 200,
      body: { [field]: items.slice(from, to), ...(to < items.length && { nextPageToken: String(to) }) },
    };
  };

  const base = await startFake({
    description: cloudRunDescription,
    error,
    ...(options.now && { now: options.now }),
    ...(options.onNoResponse && { onNoResponse: options.onNoResponse }),
    authorize: ({ headers, params }) => {
      if (!fake.tokens.has((headers.authorization ?? "").replace("Bearer ", "")))
        return reject(401, "Request had invalid authentication credentials");
      if (params.project !== project || params.location !== region)
        return reject(403, "Permission denied on the location");
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
        return found ? { status: 200, body: jobResource(at, found) } : reject(404, `Job ${job} could not be found`);
      },
      patchJob: ({ params: { job }, body, query }) => {
        const existing = jobs.get(job!);
        if (!existing && query.get("allowMissing") !== "true") return reject(404, `Job ${job} could not be found`);
        const { labels, template } = body as unknown as FakeJob;
        jobs.set(job!, { name: job!, labels, template, updates: (existing?.updates ?? 0) + 1 });
        // Done when it is read for the second time.
        let reads = 0;
        return operation(() => ({ done: reads++ > 0 }));
      },
      runJob: (call) => {
        const { job } = call.params;
        if (!jobs.has(job!)) return reject(404, `Job ${job} could not be found`);
        if (executions.filter(unfinished).length >= fake.quota)
          return reject(429, "Quota exceeded for the number of running executions in this region");
        const { overrides } = call.body as {
          overrides: { containerOverrides: { env: { name: string; value: string }[] }[] };
        };
        const env = Object.fromEntries(overrides.containerOverrides[0]!.env.map(({ name, value }) => [name, value]));
        const execution = createExecution(job!, env, call.half);
        return operation(() => ({
          done: !unfinished(execution),
          metadata: { "@type": "execution", ...resource(at, execution) },
        }));
      },
      listExecutions: (call) =>
        page(
          call,
          "executions",
          executions.filter(({ job }) => job === call.params.job).map((execution) => resource(at, execution)),
        ),
      getExecution: (call) =>
        replyTo(executionOf(call), (execution) => ({ status: 200, body: resource(at, execution) })),
      cancelExecution: (call) =>
        replyTo(executionOf(call), (execution) => {
          if (!unfinished(execution)) return reject(400, "Execution has finished");
          execution.state = "cancelling";
          if (execution.process) execution.process.kill("SIGTERM");
          else if (!fake.holdStarts) finish(execution, { code: 0 });
          return operation(() => ({
            done: !unfinished(execution),
            metadata: { "@type": "execution", ...resource(at, execution) },
          }));
        }),
      listTasks: (call) =>
        replyTo(executionOf(call), (execution) =>
          page(call, "tasks", [{ name: `${at}/${execution.id}/tasks/t0`, index: 0, ...result(execution) }]),
        ),
      getOperation: ({ params }) => {
        const name = `${at}/operations/${params.operation}`;
        const state = operations.get(name);
        return state ? { status: 200, body: { name, ...state() } } : reject(404, "Operation not found");
      },
    },
  });

  const closeBase = base.close;
  const fake: FakeCloudRun = Object.assign(base, {
    async close() {
      for (const { process: body } of executions) body?.kill("SIGKILL");
      await closeBase();
    },
    project,
    region,
    token,
    tokens: new Set([token]),
    jobs,
    executions,
    quota: 1000,
    holdStarts: false,
    alive: () => executions.filter(unfinished),
    machine: (name: string) => {
      const found = executions.filter(({ machine }) => machine === name);
      if (found.length !== 1) throw new Error(`${found.length} executions are called ${name}`);
      return found[0]!;
    },
    add: (job: string, env: Record<string, string>, state: FakeExecution["state"] = "running") => {
      const execution = createExecution(job, env, true);
      return Object.assign(execution, { state, startedAt: now() });
    },
    startExecution: (name: string) => executions.filter(({ machine }) => machine === name).forEach(start),
    exit: (name: string, end: FakeExecution["end"] & object) => {
      const execution = executions.find((execution) => execution.machine === name && unfinished(execution))!;
      execution.process?.kill("SIGKILL");
      finish(execution, end);
    },
  });
  return fake;
}

const STATUS_NAMES: Record<number, string> = {
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

function resource(at: string, execution: FakeExecution): object {
  const stamp = (ms: number) => new Date(ms).toISOString();
  const { state, end } = execution;
  const over = { succeeded: "CONDITION_SUCCEEDED", failed: "CONDITION_FAILED", cancelled: "CONDITION_FAILED" }[
    state as string
  ];
  const reason = { cancelled: "CANCELLED", cancelling: "CANCELLING", failed: "NON_ZERO_EXIT_CODE" }[state as string];
  return {
    name: `${at}/${execution.id}`,
    uid: execution.id.slice(-6),
    job: execution.job,
    labels: execution.labels,
    createTime: stamp(execution.createdAt),
    ...(execution.startedAt !== undefined && { startTime: stamp(execution.startedAt) }),
    ...(execution.endedAt !== undefined && { completionTime: stamp(execution.endedAt) }),
    taskCount: 1,
    // The API omits zeros.
    ...(state === "running" && { runningCount: 1 }),
    ...(state === "succeeded" && { succeededCount: 1 }),
    ...(state === "failed" && { failedCount: 1 }),
    ...(state === "cancelled" && { cancelledCount: 1 }),
    conditions: [
      {
        type: "Completed",
        state: over ?? "CONDITION_RECONCILING",
        lastTransitionTime: stamp(execution.endedAt ?? execution.startedAt ?? execution.createdAt),
        ...(reason && { executionReason: reason }),
        ...(state === "failed" && { message: failureMessage(execution) }),
      },
      { type: "Started", state: execution.startedAt === undefined ? "CONDITION_PENDING" : "CONDITION_SUCCEEDED" },
    ],
    template: execution.template,
  };

  function failureMessage({ end: exit }: FakeExecution): string {
    if (end?.oom) return "Task t0 failed with message: Memory limit of 2048 MiB exceeded with 2051 MiB used.";
    return `Task t0 failed with message: ${exit?.message ?? "The container exited with an error."}`;
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
  /** Content of a service account's key file. */
  key: { type: string; client_email: string; private_key: string; private_key_id: string; token_uri: string };
  /** All issued tokens, with the kind of request. */
  issued: { token: string; by: "key" | "user" | "metadata" }[];
  /** Responds with these statuses to the next calls. */
  fail(...statuses: number[]): void;
  close(): Promise<void>;
}

/** The token endpoint and the metadata server. It verifies the signature of an assertion. */
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
        request.url === "/token" ? verifyGrant(text) : request.headers["metadata-flavor"] === "Google" && "metadata";
      const status = failures.shift() ?? (by ? 200 : 400);
      const token = randomBytes(8).toString("hex");
      if (status === 200 && by) {
        tokens.issued.push({ token, by });
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
  function verifyGrant(text: string): "key" | "user" | undefined {
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
    issued: [],
    fail: (...statuses) => void failures.push(...statuses),
    close: async () => {
      server.closeAllConnections();
      await new Promise((resolve) => server.close(resolve));
    },
  };
  return tokens;
}
