// Bearer tokens for Google's APIs, cached until one minute before they expire. Sources:
//
//   token        from the options; the caller renews it
//   key file     a service account's key signs an assertion that is exchanged for a token; user credentials exchange
//                their refresh token
//   metadata     the metadata server, on Google's own machines
import { createSign } from "node:crypto";
import { type Clock, ProviderError } from "../../provider.ts";
import { describePath, readJsonCredentials } from "../read-credentials.ts";

export interface GoogleAuthOptions {
  token?: string | (() => string | Promise<string>) | undefined;
  /** Path or content of a key file. Without it and without a token the metadata server is used. */
  credentials?: string | GoogleKey | undefined;
  /** Base URL of the metadata server. */
  metadata?: string | undefined;
  clock: Clock;
  fetch?: typeof fetch;
}

/** The fields that are used of a key file. */
export interface GoogleKey {
  type?: string;
  client_email?: string;
  private_key?: string;
  private_key_id?: string;
  token_uri?: string;
  client_id?: string;
  client_secret?: string;
  refresh_token?: string;
}

const SCOPE = "https://www.googleapis.com/auth/cloud-platform";
const TOKEN_URI = "https://oauth2.googleapis.com/token";
/** Renew early: servers whose clock is ahead reject a token in its last seconds. */
const EARLY_MS = 60_000;
const WAITS_MS = [1000, 2000, 4000];
const remedy =
  "Set token or credentials in cloudRun(), set GOOGLE_APPLICATION_CREDENTIALS to a service account's key file, or run where a service account is attached";

export class GoogleAuth {
  readonly #options: GoogleAuthOptions;
  #cached: { token: string; until: number } | undefined;
  #pending: Promise<string> | undefined;

  constructor(options: GoogleAuthOptions) {
    this.#options = options;
  }

  async headers(): Promise<Record<string, string>> {
    const { token, clock } = this.#options;
    if (token !== undefined) return { authorization: `Bearer ${typeof token === "string" ? token : await token()}` };
    if (this.#cached && this.#cached.until > clock.now()) return { authorization: `Bearer ${this.#cached.token}` };
    // Concurrent callers share one request.
    this.#pending ??= this.#fetch().finally(() => {
      this.#pending = undefined;
    });
    return { authorization: `Bearer ${await this.#pending}` };
  }

  /** For a rejected token: the next call fetches a new one. */
  discardToken(): void {
    this.#cached = undefined;
  }

  async #fetch(): Promise<string> {
    const { credentials, clock } = this.#options;
    const response = credentials === undefined ? await this.#fromMetadata() : await this.#fromKey(readKey(credentials));
    const { access_token: token, expires_in: seconds } = response as { access_token?: unknown; expires_in?: unknown };
    if (typeof token !== "string" || token === "") {
      throw new ProviderError("auth", "Google returned no token", { certain: true, remedy });
    }
    this.#cached = { token, until: clock.now() + Number(seconds ?? 0) * 1000 - EARLY_MS };
    return token;
  }

  #fromMetadata(): Promise<unknown> {
    const base = this.#options.metadata ?? "http://metadata.google.internal";
    return this.#request(`${base}/computeMetadata/v1/instance/service-accounts/default/token`, {
      headers: { "metadata-flavor": "Google" },
    });
  }

  #fromKey(key: GoogleKey): Promise<unknown> {
    const uri = key.token_uri ?? TOKEN_URI;
    const form =
      key.type === "authorized_user"
        ? {
            grant_type: "refresh_token",
            client_id: key.client_id ?? "",
            client_secret: key.client_secret ?? "",
            refresh_token: key.refresh_token ?? "",
          }
        : {
            grant_type: "urn:ietf:params:oauth:grant-type:jwt-bearer",
            assertion: signAssertion(key, uri, this.#options.clock.now()),
          };
    return this.#request(uri, { method: "POST", body: new URLSearchParams(form) });
  }

  async #request(url: string, init: RequestInit): Promise<unknown> {
    const { clock, fetch: send = fetch } = this.#options;
    for (let retry = 0; ; retry++) {
      let problem: string;
      let cause: unknown;
      try {
        const response = await send(url, { ...init, redirect: "error", signal: AbortSignal.timeout(10_000) });
        const text = await response.text();
        // A successful response may contain a token, which a parser error would quote.
        const body = response.ok ? parseJson(text) : undefined;
        if (body !== undefined) return body;
        problem = response.ok ? "the response is not JSON" : `${response.status} ${text.slice(0, 200)}`;
        // A revoked key stays revoked; only server errors are temporary.
        if (!response.ok && response.status < 500 && response.status !== 429) {
          throw new ProviderError("auth", `Google did not issue a token: ${problem}`, { certain: true, remedy });
        }
      } catch (error) {
        if (error instanceof ProviderError) throw error;
        cause = error;
        problem = (error as { cause?: Error }).cause?.message ?? (error as Error).message;
      }
      if (retry >= WAITS_MS.length) {
        const options = { certain: true, ...(cause !== undefined && { cause }) };
        // Without a metadata server this is not a machine of Google's.
        const isOutside = this.#options.credentials === undefined && isUnknownHost(cause);
        throw new ProviderError(isOutside ? "auth" : "unreachable", `No token from ${new URL(url).host}: ${problem}`, {
          ...options,
          ...(isOutside && { remedy }),
        });
      }
      await clock.sleep(WAITS_MS[retry]!);
    }
  }
}

function parseJson(text: string): object | undefined {
  try {
    return JSON.parse(text) ?? undefined;
  } catch {
    return undefined;
  }
}

function isUnknownHost(error: unknown): boolean {
  const { code } = ((error as { cause?: unknown } | undefined)?.cause ?? {}) as { code?: string };
  return code === "ENOTFOUND" || code === "EAI_AGAIN";
}

function readKey(credentials: string | GoogleKey): GoogleKey {
  const location = typeof credentials === "string" ? describePath(credentials) : "";
  const reject = (problem: string): never => {
    throw new ProviderError("auth", `The Google key ${location}${problem}`, { certain: true, remedy });
  };
  const value = typeof credentials === "string" ? readJsonCredentials(credentials, reject) : credentials;
  const key = (typeof value === "object" && value !== null ? value : {}) as GoogleKey;
  const type = key.type ?? "service_account";
  if (type !== "service_account" && type !== "authorized_user") {
    const kind = String(type).slice(0, 40);
    return reject(`has the type "${kind}"; supported are service_account and authorized_user`);
  }
  if (type === "service_account" && !(key.client_email && key.private_key))
    return reject("has no client_email or no private_key");
  return { ...key, type };
}

/** A JWT bearer assertion for the service account (RFC 7523). */
function signAssertion(key: GoogleKey, audience: string, nowMs: number): string {
  const encode = (value: object): string => Buffer.from(JSON.stringify(value)).toString("base64url");
  const issuedAt = Math.floor(nowMs / 1000);
  const header = { alg: "RS256", typ: "JWT", ...(key.private_key_id && { kid: key.private_key_id }) };
  const claims = { iss: key.client_email, scope: SCOPE, aud: audience, iat: issuedAt, exp: issuedAt + 3600 };
  const signed = `${encode(header)}.${encode(claims)}`;
  try {
    return `${signed}.${createSign("RSA-SHA256").update(signed).sign(key.private_key!).toString("base64url")}`;
  } catch {
    throw new ProviderError("auth", "The private_key of the Google key is invalid", {
      certain: true,
      remedy,
    });
  }
}
