// The calls of Fly's Machines API, each within its rate limit, and the classification of its error responses.
import { type Clock, ProviderError } from "../../provider.ts";
import { ApiClient, type ApiResponse, type RequestOptions, TokenBucket } from "../http.ts";
import type { FlyMachine } from "./machine.ts";
import type { TokenFacts } from "./token.ts";

export interface FlyApiOptions {
  base: string;
  app: string;
  token: string;
  clock: Clock;
  timeoutMs: number;
  fetch?: typeof fetch;
}

/** Fly's documented limits, per action and machine, or per action and app if there is no machine yet. */
const LIMIT = { everyMs: 1000, burst: 3 };
const GET_LIMIT = { everyMs: 200, burst: 10 };
const MAX_BUCKETS = 2000;

export class FlyApi {
  readonly #options: FlyApiOptions;
  readonly #api: ApiClient;
  readonly #machines: string;

  constructor(options: FlyApiOptions) {
    const { app, base, clock, timeoutMs, fetch } = options;
    this.#options = options;
    this.#machines = `/apps/${encodeURIComponent(app)}/machines`;
    this.#api = new ApiClient({
      name: "Fly",
      base,
      authorize: () => ({ authorization: `Bearer ${options.token}` }),
      clock,
      timeoutMs,
      authRemedy: `Create a token for the workers' app and set FLY_API_TOKEN: fly tokens create deploy --app ${app}`,
      requestIdHeader: "fly-request-id",
      ...(fetch && { fetch }),
    });
  }

  /** Filtered by tag on the server; callers check each machine again. */
  async list(fleet: string, options: RequestOptions = {}): Promise<FlyMachine[]> {
    const path = `${this.#machines}?metadata.stillwake_fleet=${encodeURIComponent(fleet)}`;
    const { body } = await this.#api.request("GET", path, { ...options, bucket: this.#bucket("list") });
    if (Array.isArray(body)) return body;
    throw new ProviderError("unreachable", "Fly returned no list of machines", { certain: true });
  }

  async get(id: string): Promise<FlyMachine | undefined> {
    const { status, body } = await this.#api.request("GET", this.#path(id), {
      expect: [404],
      bucket: this.#bucket("get", id),
    });
    return status === 404 ? undefined : (body as FlyMachine);
  }

  /** Names are unique, so the call may be repeated; `recheck` avoids that. */
  create(body: object, recheck: () => Promise<ApiResponse | undefined>): Promise<ApiResponse> {
    return this.#api.request("POST", this.#machines, {
      body,
      expect: [400, 409, 412, 422],
      bucket: this.#bucket("create"),
      recheck,
    });
  }

  start(id: string): Promise<ApiResponse> {
    return this.#api.request("POST", `${this.#path(id)}/start`, {
      expect: [400, 404, 409, 412, 422],
      bucket: this.#bucket("start", id),
    });
  }

  /** Returns false if the machine runs and `force` is not set. */
  async remove(id: string, { force }: { force: boolean }): Promise<boolean> {
    const { status } = await this.#api.request("DELETE", `${this.#path(id)}?force=${force}`, {
      expect: force ? [404] : [404, 409, 412],
      bucket: this.#bucket("remove", id),
    });
    return status < 300 || status === 404;
  }

  /** Undefined if Fly does not report it. No retries, so that the check stays fast. */
  async readToken(): Promise<TokenFacts[] | undefined> {
    const { status, body } = await this.#api.request("GET", "/tokens/current", { expect: [400, 404, 422], retries: 0 });
    return status === 200 ? (body as { tokens?: TokenFacts[] })?.tokens : undefined;
  }

  #path(id: string): string {
    return `${this.#machines}/${encodeURIComponent(id)}`;
  }

  #bucket(action: string, id = ""): TokenBucket {
    const { clock, base, app } = this.#options;
    return bucketOf(clock, `${base} ${app} ${action} ${id}`, action === "get" ? GET_LIMIT : LIMIT);
  }
}

/** Shared by all pools of this process, because the limits are per app. */
const buckets = new WeakMap<Clock, Map<string, TokenBucket>>();

function bucketOf(clock: Clock, key: string, limit: typeof LIMIT): TokenBucket {
  const all = buckets.get(clock) ?? new Map<string, TokenBucket>();
  buckets.set(clock, all);
  const bucket = all.get(key) ?? new TokenBucket(clock, limit);
  // Least recently used first: that one is evicted.
  all.delete(key);
  all.set(key, bucket);
  if (all.size > MAX_BUCKETS) all.delete(all.keys().next().value!);
  return bucket;
}

export function errorText({ body }: ApiResponse): string {
  const fields = (typeof body === "object" && body !== null ? body : { error: body }) as Record<string, unknown>;
  return String(fields.error ?? fields.message ?? "").slice(0, 300);
}

export function isNameTaken(response: ApiResponse): boolean {
  const { status, body } = response;
  if (status !== 409 && status !== 422) return false;
  return (
    (body as { status?: string } | undefined)?.status === "name_taken" || /already[_ ]exists/i.test(errorText(response))
  );
}

/** Fly reports it by a code or in one of several messages; an exhausted quota counts as well. */
export function isCapacity(response: ApiResponse): boolean {
  const code = (response.body as { status?: string } | undefined)?.status;
  return (
    code === "insufficient_capacity" ||
    /insufficient|no capacity|could not reserve|machine limit|quota/i.test(errorText(response))
  );
}
