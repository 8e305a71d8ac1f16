// The calls of Fly's Machines API that we make, each within its limit, and what their refusals mean.

import { type Clock, ProviderError } from "../../provider.ts";
import { type Answer, Api, type Ask, Bucket } from "../http.ts";
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

/** Per action and machine, or app where there is no machine yet; as documented. */
const LIMIT = { everyMs: 1000, burst: 3 };
const GET_LIMIT = { everyMs: 200, burst: 10 };
const MAX_BUCKETS = 2000;

export class FlyApi {
  readonly #options: FlyApiOptions;
  readonly #api: Api;
  readonly #machines: string;

  constructor(options: FlyApiOptions) {
    const { app, base, clock, timeoutMs, fetch } = options;
    this.#options = options;
    this.#machines = `/apps/${encodeURIComponent(app)}/machines`;
    this.#api = new Api({
      name: "Fly",
      base,
      authorize: () => ({ authorization: `Bearer ${options.token}` }),
      clock,
      timeoutMs,
      authRemedy: `Make a token for the workers' app and set FLY_API_TOKEN: fly tokens create deploy --app ${app}`,
      requestIdHeader: "fly-request-id",
      ...(fetch && { fetch }),
    });
  }

  /** Those that are tagged so, if the filter works as documented: whoever asks looks at each. */
  async list(fleet: string, ask: Ask = {}): Promise<FlyMachine[]> {
    const path = `${this.#machines}?metadata.stillwake_fleet=${encodeURIComponent(fleet)}`;
    const { body } = await this.#api.ask("GET", path, { ...ask, bucket: this.#bucket("list") });
    if (Array.isArray(body)) return body;
    throw new ProviderError("unreachable", "Fly answers a list of machines with something else", { certain: true });
  }

  async get(id: string): Promise<FlyMachine | undefined> {
    const { status, body } = await this.#api.ask("GET", this.#path(id), {
      expect: [404],
      bucket: this.#bucket("get", id),
    });
    return status === 404 ? undefined : (body as FlyMachine);
  }

  /** A name is taken once, so that it may be sent again; `recheck` saves doing so. */
  create(body: object, recheck: () => Promise<Answer | undefined>): Promise<Answer> {
    return this.#api.ask("POST", this.#machines, {
      body,
      expect: [400, 409, 412, 422],
      bucket: this.#bucket("create"),
      recheck,
    });
  }

  start(id: string): Promise<Answer> {
    return this.#api.ask("POST", `${this.#path(id)}/start`, {
      expect: [400, 404, 409, 412, 422],
      bucket: this.#bucket("start", id),
    });
  }

  /** False when it runs and must not be ended. */
  async remove(id: string, { force }: { force: boolean }): Promise<boolean> {
    const { status } = await this.#api.ask("DELETE", `${this.#path(id)}?force=${force}`, {
      expect: force ? [404] : [404, 409, 412],
      bucket: this.#bucket("remove", id),
    });
    return status < 300 || status === 404;
  }

  /** Undefined when it cannot be told. Asked once: nobody shall wait for it. */
  async token(): Promise<TokenFacts[] | undefined> {
    const { status, body } = await this.#api.ask("GET", "/tokens/current", { expect: [400, 404, 422], retries: 0 });
    return status === 200 ? (body as { tokens?: TokenFacts[] })?.tokens : undefined;
  }

  #path(id: string): string {
    return `${this.#machines}/${encodeURIComponent(id)}`;
  }

  #bucket(action: string, id = ""): Bucket {
    const { clock, base, app } = this.#options;
    return bucketOf(clock, `${base} ${app} ${action} ${id}`, action === "get" ? GET_LIMIT : LIMIT);
  }
}

/** Pools of one app share its limits, and with them the buckets, as far as this process goes. */
const buckets = new WeakMap<Clock, Map<string, Bucket>>();

function bucketOf(clock: Clock, key: string, limit: typeof LIMIT): Bucket {
  const all = buckets.get(clock) ?? new Map<string, Bucket>();
  buckets.set(clock, all);
  const bucket = all.get(key) ?? new Bucket(clock, limit);
  // The one that was used last stands last: the first is the one to forget.
  all.delete(key);
  all.set(key, bucket);
  if (all.size > MAX_BUCKETS) all.delete(all.keys().next().value!);
  return bucket;
}

export function said({ body }: Answer): string {
  const told = (typeof body === "object" && body !== null ? body : { error: body }) as Record<string, unknown>;
  return String(told.error ?? told.message ?? "").slice(0, 300);
}

export function isNameTaken(answer: Answer): boolean {
  const { status, body } = answer;
  if (status !== 409 && status !== 422) return false;
  return (body as { status?: string } | undefined)?.status === "name_taken" || /already[_ ]exists/i.test(said(answer));
}

/** They say it by a code, or in one of several sentences; a quota that is used up is no room either. */
export function isCapacity(answer: Answer): boolean {
  const code = (answer.body as { status?: string } | undefined)?.status;
  return (
    code === "insufficient_capacity" ||
    /insufficient|no capacity|could not reserve|machine limit|quota/i.test(said(answer))
  );
}
