// The calls of Cloud Run's API that its provider makes, with our token, for one project and region.
import { readProviderConfig } from "../../../config.ts";
import { durationMs } from "../../../time.ts";
import { type Clock, ProviderError } from "../../provider.ts";
import { type Answer, Api, type Ask } from "../http.ts";
import { type Execution, isFinished } from "./execution.ts";
import { GoogleAuth } from "./google-auth.ts";
import type { CloudRunSettings, Job } from "./options.ts";

export interface Operation {
  name: string;
  done?: boolean;
  error?: { code?: number; message?: string };
}

const PAGE = 100;
/** An execution may show up in lists a little after one that was made later. */
const LATE_MS = 60_000;
/** How long a job resource may take to be as it should be. */
const MAX_SECONDS = 30;

export class CloudRunApi {
  readonly #auth: GoogleAuth;
  readonly #api: Api;
  readonly #clock: Clock;
  /** What is known of each job resource's executions: since when, and those that had not finished. Whoever told of all ends so far says so, and nobody else. */
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
    this.#api = new Api({
      name: "Cloud Run",
      base: `${base ?? "https://run.googleapis.com"}/v2/projects/${project}/locations/${region}`,
      authorize: () => this.#auth.headers(),
      clock,
      authRemedy:
        "Check that the service account has not been removed and may run the job: run.jobs.get, run.jobs.run, run.jobs.runWithOverrides, run.executions.get, list and cancel",
      ...(timeout !== undefined && { timeoutMs: durationMs(timeout, "timeout") }),
      ...(fetch && { fetch }),
    });
  }

  /** Newest first. What has finished and was told of is not read again: at most so many pages as are news. */
  async executions(job: string): Promise<Execution[]> {
    const before = this.#known.get(job);
    const unmet = new Set(before?.open);
    const found: Execution[] = [];
    let token = "";
    do {
      const query = `pageSize=${PAGE}${token && `&pageToken=${encodeURIComponent(token)}`}`;
      const { status, body } = await this.ask("GET", `/jobs/${job}/executions?${query}`, { expect: [404] });
      if (status === 404) return [];
      const { executions = [], nextPageToken = "" } = body as { executions?: Execution[]; nextPageToken?: string };
      found.push(...executions);
      for (const { name } of executions) unmet.delete(name);
      const reached = createdMs(executions.at(-1));
      token = before && unmet.size === 0 && reached < before.newest - LATE_MS ? "" : nextPageToken;
    } while (token !== "");
    return found;
  }

  /** These were told of, with their ends: what has finished of them is news no more. */
  told(job: string, executions: readonly Execution[]): void {
    if (executions.length === 0) return;
    this.#known.set(job, {
      newest: createdMs(executions[0]),
      open: new Set(executions.filter((execution) => !isFinished(execution)).map(({ name }) => name)),
    });
  }

  async jobs(): Promise<Job[]> {
    const found: Job[] = [];
    let token = "";
    do {
      const query = `pageSize=${PAGE}${token && `&pageToken=${encodeURIComponent(token)}`}`;
      const { body } = await this.ask("GET", `/jobs?${query}`);
      const { jobs = [], nextPageToken = "" } = body as { jobs?: Job[]; nextPageToken?: string };
      found.push(...jobs);
      token = nextPageToken;
    } while (token !== "");
    return found;
  }

  async finished(operation: Operation): Promise<void> {
    let { done, error } = operation;
    for (let waited = 0; !done && waited < MAX_SECONDS; waited++) {
      await this.#clock.sleep(1000);
      const id = operation.name.slice(operation.name.lastIndexOf("/") + 1);
      ({ done, error } = (await this.ask("GET", `/operations/${id}`)).body as Operation);
    }
    if (error)
      throw new ProviderError("refused", `Cloud Run does not take the job: ${error.message}`, {
        certain: true,
      });
  }

  async job(name: string): Promise<Job | undefined> {
    const { status, body } = await this.ask("GET", `/jobs/${name}`, { expect: [404] });
    return status === 404 ? undefined : (body as Job);
  }

  async execution(id: string): Promise<Execution | undefined> {
    const { status, body } = await this.ask("GET", `/${id}`, { expect: [404] });
    return status === 404 ? undefined : (body as Execution);
  }

  async ask(method: string, path: string, ask?: Ask): Promise<Answer> {
    try {
      return await this.#api.ask(method, path, ask);
    } catch (error) {
      if (error instanceof ProviderError && error.trouble === "auth") this.#auth.forget();
      throw error;
    }
  }
}

function createdMs(execution: Execution | undefined): number {
  return Date.parse(execution?.createTime ?? "") || 0;
}
