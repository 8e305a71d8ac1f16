// The calls of Cloud Run's API for one project and region.
import { readProviderConfig } from "../../../config.ts";
import { durationMs } from "../../../time.ts";
import { type Clock, ProviderError } from "../../provider.ts";
import { ApiClient, type ApiResponse, type RequestOptions } from "../http.ts";
import { type Execution, isFinished } from "./execution.ts";
import { GoogleAuth } from "./google-auth.ts";
import type { CloudRunSettings, Job } from "./options.ts";

export interface Operation {
  name: string;
  done?: boolean;
  error?: { code?: number; message?: string };
}

const PAGE = 100;
/** An execution may appear in lists later than a newer one. */
const LATE_MS = 60_000;
/** Timeout of a change of the job resource. */
const OPERATION_SECONDS = 30;

export class CloudRunApi {
  readonly #auth: GoogleAuth;
  readonly #api: ApiClient;
  readonly #clock: Clock;
  /** Per job resource: the newest reported execution, and the reported ones that had not finished. */
  readonly #known = new Map<string, { newest: number; open: Set<string> }>();

  constructor({ project, region, token, metadata, base, timeout, fetch, ...rest }: CloudRunSettings, clock: Clock) {
    const credentials = rest.credentials ?? readProviderConfig().googleCredentials;
    this.#clock = clock;
    this.#auth = new GoogleAuth({
      clock,
      ...(token !== undefined && { token }),
      ...(credentials !== undefined && { credentials }),
      ...(metadata !== undefined && { metadata }),
      ...(fetch && { fetch }),
    });
    this.#api = new ApiClient({
      name: "Cloud Run",
      base: `${base ?? "https://run.googleapis.com"}/v2/projects/${project}/locations/${region}`,
      authorize: () => this.#auth.headers(),
      clock,
      authRemedy:
        "Check that the service account exists and may run the job: run.jobs.get, run.jobs.run, run.jobs.runWithOverrides, run.executions.get, list and cancel",
      ...(timeout !== undefined && { timeoutMs: durationMs(timeout, "timeout") }),
      ...(fetch && { fetch }),
    });
  }

  /** Newest first. Stops at executions that were reported as finished, so that only new pages are read. */
  async listExecutions(job: string): Promise<Execution[]> {
    const before = this.#known.get(job);
    const missing = new Set(before?.open);
    const found: Execution[] = [];
    let token = "";
    do {
      const query = `pageSize=${PAGE}${token && `&pageToken=${encodeURIComponent(token)}`}`;
      const { status, body } = await this.request("GET", `/jobs/${job}/executions?${query}`, { expect: [404] });
      if (status === 404) return [];
      const { executions = [], nextPageToken = "" } = body as { executions?: Execution[]; nextPageToken?: string };
      found.push(...executions);
      for (const { name } of executions) missing.delete(name);
      const oldestMs = createdMs(executions.at(-1));
      token = before && missing.size === 0 && oldestMs < before.newest - LATE_MS ? "" : nextPageToken;
    } while (token !== "");
    return found;
  }

  /** These executions were reported to the orchestrator: the finished ones need not be read again. */
  markReported(job: string, executions: readonly Execution[]): void {
    if (executions.length === 0) return;
    this.#known.set(job, {
      newest: createdMs(executions[0]),
      open: new Set(executions.filter((execution) => !isFinished(execution)).map(({ name }) => name)),
    });
  }

  async listJobs(): Promise<Job[]> {
    const found: Job[] = [];
    let token = "";
    do {
      const query = `pageSize=${PAGE}${token && `&pageToken=${encodeURIComponent(token)}`}`;
      const { body } = await this.request("GET", `/jobs?${query}`);
      const { jobs = [], nextPageToken = "" } = body as { jobs?: Job[]; nextPageToken?: string };
      found.push(...jobs);
      token = nextPageToken;
    } while (token !== "");
    return found;
  }

  async waitForOperation(operation: Operation): Promise<void> {
    let { done, error } = operation;
    for (let waited = 0; !done && waited < OPERATION_SECONDS; waited++) {
      await this.#clock.sleep(1000);
      const id = operation.name.slice(operation.name.lastIndexOf("/") + 1);
      ({ done, error } = (await this.request("GET", `/operations/${id}`)).body as Operation);
    }
    if (error)
      throw new ProviderError("refused", `Cloud Run refuses the job: ${error.message}`, {
        certain: true,
      });
  }

  async getJob(name: string): Promise<Job | undefined> {
    const { status, body } = await this.request("GET", `/jobs/${name}`, { expect: [404] });
    return status === 404 ? undefined : (body as Job);
  }

  async getExecution(id: string): Promise<Execution | undefined> {
    const { status, body } = await this.request("GET", `/${id}`, { expect: [404] });
    return status === 404 ? undefined : (body as Execution);
  }

  async request(method: string, path: string, options?: RequestOptions): Promise<ApiResponse> {
    try {
      return await this.#api.request(method, path, options);
    } catch (error) {
      if (error instanceof ProviderError && error.kind === "auth") this.#auth.discardToken();
      throw error;
    }
  }
}

function createdMs(execution: Execution | undefined): number {
  return Date.parse(execution?.createTime ?? "") || 0;
}
