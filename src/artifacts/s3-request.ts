// One request to an S3-compatible store: signed, tried again when that can help, and its refusals told in our words. s3-store.ts says what
// to ask for. The credentials live in this closure alone: no object that is returned, thrown or printed holds them.
import { setTimeout as delay } from "node:timers/promises";
import { AwsV4Signer } from "aws4fetch";
import { StillwakeError } from "../errors.ts";

const RETRIES = 3;
const FIRST_PAUSE_MS = 200;
const MAX_PAUSE_MS = 30_000;
const ANSWER_MS = 60_000;

export interface Credentials {
  accessKeyId: string;
  secretAccessKey: string;
  sessionToken?: string;
  region?: string;
}

export interface S3Settings {
  bucket: string;
  /** Empty, or with a slash at its end. */
  prefix: string;
  endpoint: URL;
  region: string;
  style: "path" | "host";
  /** How a pause is made; replaced in tests that only want to know how long it would be. */
  pause?: (ms: number, signal?: AbortSignal) => Promise<unknown>;
}

interface S3Request {
  method: "GET" | "HEAD" | "PUT" | "POST";
  /** Without the prefix; undefined for the bucket itself. */
  key?: string;
  query?: Record<string, string>;
  headers?: Record<string, string>;
  /** Called for each try. */
  body?: () => AsyncIterable<Uint8Array> | string;
  /** What the body is: its length, and its hash for the signature. */
  size?: number;
  sha256?: string;
  signal?: AbortSignal | undefined;
}

interface S3Requests {
  send(request: S3Request): Promise<Response>;
  presign(key: string, seconds: number, query: Record<string, string>): Promise<string>;
}

export function s3Requests(settings: S3Settings, credentials: Credentials): S3Requests {
  const { accessKeyId, secretAccessKey, sessionToken } = credentials;
  const signing = {
    accessKeyId,
    secretAccessKey,
    ...(sessionToken && { sessionToken }),
    service: "s3",
    region: settings.region,
    cache: new Map<string, ArrayBuffer>(),
  };
  const pause = settings.pause ?? ((ms, signal) => delay(ms, undefined, signal ? { signal } : {}));

  async function once(request: S3Request): Promise<Response> {
    const { method, key, query = {}, body, size = 0, sha256 = EMPTY_SHA256, signal } = request;
    const headers = new Headers({ ...request.headers, "x-amz-content-sha256": sha256 });
    const signed = await new AwsV4Signer({ ...signing, method, url: urlOf(settings, key, query), headers }).sign();
    // These two are not signed: a proxy may change the one, and fetch has its own view of the other.
    signed.headers.set("accept-encoding", "identity");
    if (body) signed.headers.set("content-length", String(size));
    // A slow line may take its time, at least 50 bytes per millisecond; a dead one may not.
    const limit = AbortSignal.timeout(ANSWER_MS + Math.ceil(size / 50));
    return fetch(plain(signed.url), {
      method,
      headers: signed.headers,
      redirect: "manual",
      signal: method === "GET" ? (signal ?? null) : signal ? AbortSignal.any([signal, limit]) : limit,
      ...(body && { body: body() as ReadableStream<Uint8Array>, duplex: "half" }),
    } as RequestInit);
  }

  return {
    async send(request) {
      for (let tries = 0; ; tries++) {
        let problem: string;
        let asked: number | undefined;
        let cause: unknown;
        try {
          const response = await once(request);
          if (!isPassing(request, response.status)) return response;
          problem = `it answered ${response.status} ${(await answerOf(response)).code}`.trim();
          asked = retryAfter(response.headers.get("retry-after"));
        } catch (error) {
          request.signal?.throwIfAborted();
          const ours = ownError(error);
          if (ours) throw ours;
          problem = reasonOf(error);
          cause = error;
        }
        if (tries === RETRIES) {
          throw new StillwakeError(
            "STORE_UNAVAILABLE",
            `The artifact store at ${settings.endpoint.host} failed: ${problem}`,
            {
              cause,
              retryable: true,
              remedy: "See whether the endpoint is right and the provider has no outage",
            },
          );
        }
        const backoff = FIRST_PAUSE_MS * 2 ** tries * (0.5 + Math.random() / 2);
        await pause(Math.min(asked ?? backoff, MAX_PAUSE_MS), request.signal);
      }
    },

    async presign(key, seconds, query) {
      const url = urlOf(settings, key, { ...query, "X-Amz-Expires": String(seconds) });
      return plain((await new AwsV4Signer({ ...signing, method: "GET", url, signQuery: true }).sign()).url);
    },
  };
}

/** An answer that is read to its end: a connection with an unread body cannot be used again. */
export interface Answer {
  status: number;
  /** The provider's word for what is wrong, empty if there is none. */
  code: string;
  text: string;
  region: string | null;
}

export async function answerOf(response: Response): Promise<Answer> {
  const text = await response.text().catch(() => "");
  const code = /<Code>(\w{1,64})<\/Code>/.exec(text)?.[1] ?? "";
  return { status: response.status, code, text, region: response.headers.get("x-amz-bucket-region") };
}

/** What a refusal means and what to do about it. Of the answer only its code is told: some providers repeat the key id in it. */
export function refusal({ status, code, region }: Answer, settings: S3Settings, act: string): StillwakeError {
  const { bucket, endpoint } = settings;
  if (status >= 300 && status < 400) {
    return new StillwakeError("STORE_MISSING", `The bucket ${bucket} is not in the region ${settings.region}`, {
      remedy: `Add region=${region ?? "<its region>"} to the store's URL, or correct its endpoint`,
    });
  }
  if (status === 404) {
    return new StillwakeError("STORE_MISSING", `The bucket ${bucket} does not exist at ${endpoint.host}`, {
      remedy: "Create it, or correct the store's URL",
    });
  }
  if (code === "RequestTimeTooSkewed") {
    return new StillwakeError("STORE_DENIED", "The artifact store refuses requests with this machine's time", {
      retryable: true,
      remedy: "Set the machine's clock",
    });
  }
  if (status === 401 || status === 403 || /Token|AccessKeyId/.test(code)) {
    return new StillwakeError("STORE_DENIED", `The artifact store does not allow ${act} (${code || status})`, {
      remedy: `Check the access key, and that it may get, put, list and delete in the bucket ${bucket}`,
    });
  }
  return new StillwakeError("STORE_REFUSED", `The artifact store answered ${status} ${code} to ${act}`, {
    remedy: "See what the provider says about this code",
  });
}

const EMPTY_SHA256 = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";

function urlOf(
  { endpoint, bucket, prefix, style }: S3Settings,
  key: string | undefined,
  query: Record<string, string>,
): string {
  const url = new URL(endpoint);
  if (style === "host") url.hostname = `${bucket}.${url.hostname}`;
  const base = url.pathname.replace(/\/$/, "") + (style === "path" ? `/${bucket}` : "");
  url.pathname = `${base}/${key === undefined ? "" : prefix + key}`;
  for (const [name, value] of Object.entries(query)) url.searchParams.set(name, value);
  return url.href;
}

/** URLSearchParams writes a space as a plus and a star as it is, which not every store reads as it was signed. */
function plain(url: URL): string {
  return url.origin + url.pathname + url.search.replaceAll("+", "%20").replaceAll("*", "%2A");
}

/** 501 says never, and 409 that two conditional requests met. */
function isPassing({ method }: S3Request, status: number): boolean {
  return (status >= 500 && status !== 501) || status === 429 || (status === 409 && method === "PUT");
}

function retryAfter(header: string | null): number | undefined {
  if (!header) return undefined;
  const ms = /^\d+$/.test(header) ? Number(header) * 1000 : Date.parse(header) - Date.now();
  return Number.isNaN(ms) ? undefined : Math.max(0, ms);
}

/** What the body's own generator threw comes back wrapped by fetch. */
function ownError(thrown: unknown): StillwakeError | undefined {
  for (let error = thrown; error; error = (error as Error).cause) if (error instanceof StillwakeError) return error;
}

function reasonOf(thrown: unknown): string {
  const { cause, name, message } = thrown as Error;
  if (name === "TimeoutError") return "it did not answer in time";
  return (cause as NodeJS.ErrnoException)?.code ?? (cause as Error)?.message ?? message;
}
