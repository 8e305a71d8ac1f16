// Sends one request to an S3-compatible store: signs it, retries it when that can help, and converts errors. Called by
// s3-store.ts. Only this closure holds the credentials: no object that is returned, thrown or printed contains them.
import { setTimeout as delay } from "node:timers/promises";
import { AwsV4Signer } from "aws4fetch";
import { StillwakeError } from "../errors.ts";
import { parseRetryAfter } from "../time.ts";

const MAX_RETRIES = 3;
const FIRST_PAUSE_MS = 200;
const MAX_PAUSE_MS = 30_000;
const RESPONSE_MS = 60_000;

export interface Credentials {
  accessKeyId: string;
  secretAccessKey: string;
  sessionToken?: string;
  region?: string;
}

export interface S3Settings {
  bucket: string;
  /** Empty, or ends with a slash. */
  prefix: string;
  endpoint: URL;
  region: string;
  style: "path" | "host";
  /** Waits between retries. Tests replace it. */
  pause?: (ms: number, signal?: AbortSignal) => Promise<unknown>;
}

interface S3Request {
  method: "GET" | "HEAD" | "PUT" | "POST";
  /** Without the prefix; undefined for the bucket itself. */
  key?: string;
  query?: Record<string, string>;
  headers?: Record<string, string>;
  /** Called for each try of the request. */
  body?: () => AsyncIterable<Uint8Array> | string;
  /** Length and hash of the body, for the signature. */
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
    // Not signed: a proxy may change accept-encoding, and fetch may change content-length.
    signed.headers.set("accept-encoding", "identity");
    if (body) signed.headers.set("content-length", String(size));
    // Allows slow connections of at least 50 bytes per millisecond.
    const limit = AbortSignal.timeout(RESPONSE_MS + Math.ceil(size / 50));
    return fetch(toStrictUrl(signed.url), {
      method,
      headers: signed.headers,
      redirect: "manual",
      signal: method === "GET" ? (signal ?? null) : signal ? AbortSignal.any([signal, limit]) : limit,
      ...(body && { body: body() as ReadableStream<Uint8Array>, duplex: "half" }),
    } as RequestInit);
  }

  return {
    async send(request) {
      for (let retries = 0; ; retries++) {
        let problem: string;
        let retryAfterMs: number | undefined;
        let cause: unknown;
        try {
          const response = await once(request);
          if (!isRetryable(request, response.status)) return response;
          problem = `status ${response.status} ${(await readAnswer(response)).code}`.trim();
          retryAfterMs = parseRetryAfter(response.headers.get("retry-after"));
        } catch (error) {
          request.signal?.throwIfAborted();
          const bodyError = findBodyError(error);
          if (bodyError) throw bodyError;
          problem = describeError(error);
          cause = error;
        }
        if (retries === MAX_RETRIES) {
          throw new StillwakeError(
            "STORE_UNAVAILABLE",
            `The artifact store at ${settings.endpoint.host} failed: ${problem}`,
            {
              cause,
              retryable: true,
              remedy: "Check the endpoint, and whether the provider has an outage",
            },
          );
        }
        const backoff = FIRST_PAUSE_MS * 2 ** retries * (0.5 + Math.random() / 2);
        await pause(Math.min(retryAfterMs ?? backoff, MAX_PAUSE_MS), request.signal);
      }
    },

    async presign(key, seconds, query) {
      const url = urlOf(settings, key, { ...query, "X-Amz-Expires": String(seconds) });
      return toStrictUrl((await new AwsV4Signer({ ...signing, method: "GET", url, signQuery: true }).sign()).url);
    },
  };
}

/** A response whose body was read: a connection with an unread body cannot be reused. */
export interface Answer {
  status: number;
  /** The error code of the provider, or empty. */
  code: string;
  text: string;
  region: string | null;
}

export async function readAnswer(response: Response): Promise<Answer> {
  const text = await response.text().catch(() => "");
  const code = /<Code>(\w{1,64})<\/Code>/.exec(text)?.[1] ?? "";
  return { status: response.status, code, text, region: response.headers.get("x-amz-bucket-region") };
}

/** Converts an error response. The message contains only its code: some providers repeat the key id in the text. */
export function toStoreError({ status, code, region }: Answer, settings: S3Settings, action: string): StillwakeError {
  const { bucket, endpoint } = settings;
  if (status >= 300 && status < 400) {
    return new StillwakeError("STORE_MISSING", `The bucket ${bucket} is not in the region ${settings.region}`, {
      remedy: `Add region=${region ?? "<its region>"} to the URL of the store, or correct its endpoint`,
    });
  }
  if (status === 404) {
    return new StillwakeError("STORE_MISSING", `The bucket ${bucket} does not exist at ${endpoint.host}`, {
      remedy: "Create it, or correct the URL of the store",
    });
  }
  if (code === "RequestTimeTooSkewed") {
    return new StillwakeError("STORE_DENIED", "The artifact store rejects the clock of this machine", {
      retryable: true,
      remedy: "Correct the clock of the machine",
    });
  }
  if (status === 401 || status === 403 || /Token|AccessKeyId/.test(code)) {
    return new StillwakeError("STORE_DENIED", `The artifact store does not allow ${action} (${code || status})`, {
      remedy: `Check the access key, and that it may get, put, list and delete objects in the bucket ${bucket}`,
    });
  }
  return new StillwakeError("STORE_REFUSED", `The artifact store rejected ${action} with status ${status} ${code}`, {
    remedy: "See the provider's documentation of this code",
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

/** Percent-encodes spaces and stars, which URLSearchParams does not: some stores would compute another signature. */
function toStrictUrl(url: URL): string {
  return url.origin + url.pathname + url.search.replaceAll("+", "%20").replaceAll("*", "%2A");
}

/** 501 is permanent; 409 means that two conditional requests collided. */
function isRetryable({ method }: S3Request, status: number): boolean {
  return (status >= 500 && status !== 501) || status === 429 || (status === 409 && method === "PUT");
}

/** fetch wraps the errors that the generator of the body throws. */
function findBodyError(thrown: unknown): StillwakeError | undefined {
  for (let error = thrown; error; error = (error as Error).cause) if (error instanceof StillwakeError) return error;
}

function describeError(thrown: unknown): string {
  const { cause, name, message } = thrown as Error;
  if (name === "TimeoutError") return "no response in time";
  return (cause as NodeJS.ErrnoException)?.code ?? (cause as Error)?.message ?? message;
}
