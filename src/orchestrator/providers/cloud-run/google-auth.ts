// How the Cloud Run provider gets in: a bearer token of Google's, from whichever of these there is, kept until a minute before it ends.
//
//   token        given by the caller, who also renews it
//   key file     a service account's key signs a statement that is traded for a token; a user's own credentials trade their refresh token
//   metadata     on Google's own machines, a server at a fixed address gives one
import { createSign } from "node:crypto";
import { type Clock, ProviderError } from "../../provider.ts";
import { givenJson, placed } from "../read-credentials.ts";

export interface GoogleAuthOptions {
  token?: string | (() => string | Promise<string>) | undefined;
  /** The path of a key file, or what is in it; without one and without a token the metadata server is asked. */
  credentials?: string | GoogleKey | undefined;
  /** Where the metadata server is. */
  metadata?: string | undefined;
  clock: Clock;
  fetch?: typeof fetch;
}

/** What is used of a file of credentials. */
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
/** A token that is used up to its last second is refused by servers whose clock is ahead. */
const EARLY_MS = 60_000;
const WAITS_MS = [1000, 2000, 4000];
const remedy =
  "Give cloudRun() a token or credentials, set GOOGLE_APPLICATION_CREDENTIALS to a service account's key file, or run where a service account is attached";

export class GoogleAuth {
  readonly #options: GoogleAuthOptions;
  #kept: { token: string; until: number } | undefined;
  #asking: Promise<string> | undefined;

  constructor(options: GoogleAuthOptions) {
    this.#options = options;
  }

  async headers(): Promise<Record<string, string>> {
    const { token, clock } = this.#options;
    if (token !== undefined) return { authorization: `Bearer ${typeof token === "string" ? token : await token()}` };
    if (this.#kept && this.#kept.until > clock.now()) return { authorization: `Bearer ${this.#kept.token}` };
    // All who come while one is being fetched wait for that one.
    this.#asking ??= this.#fetch().finally(() => {
      this.#asking = undefined;
    });
    return { authorization: `Bearer ${await this.#asking}` };
  }

  /** The token was refused: the next call gets a new one. */
  forget(): void {
    this.#kept = undefined;
  }

  async #fetch(): Promise<string> {
    const { credentials, clock } = this.#options;
    const answer = credentials === undefined ? await this.#fromMetadata() : await this.#fromKey(readKey(credentials));
    const { access_token: token, expires_in: seconds } = answer as { access_token?: unknown; expires_in?: unknown };
    if (typeof token !== "string" || token === "") {
      throw new ProviderError("auth", "Google gave no token", { certain: true, remedy });
    }
    this.#kept = { token, until: clock.now() + Number(seconds ?? 0) * 1000 - EARLY_MS };
    return token;
  }

  #fromMetadata(): Promise<unknown> {
    const base = this.#options.metadata ?? "http://metadata.google.internal";
    return this.#ask(`${base}/computeMetadata/v1/instance/service-accounts/default/token`, {
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
            assertion: statement(key, uri, this.#options.clock.now()),
          };
    return this.#ask(uri, { method: "POST", body: new URLSearchParams(form) });
  }

  async #ask(url: string, init: RequestInit): Promise<unknown> {
    const { clock, fetch: send = fetch } = this.#options;
    for (let tried = 0; ; tried++) {
      let trouble: string;
      let cause: unknown;
      try {
        const response = await send(url, { ...init, redirect: "error", signal: AbortSignal.timeout(10_000) });
        const text = await response.text();
        // What was well answered may hold a token, and a parser would quote it.
        const answer = response.ok ? parsed(text) : undefined;
        if (answer !== undefined) return answer;
        trouble = response.ok ? "an answer that is not JSON" : `${response.status} ${text.slice(0, 200)}`;
        // A key that was revoked stays so; only what is wrong on their side passes.
        if (!response.ok && response.status < 500 && response.status !== 429) {
          throw new ProviderError("auth", `Google gives no token: ${trouble}`, { certain: true, remedy });
        }
      } catch (error) {
        if (error instanceof ProviderError) throw error;
        cause = error;
        trouble = (error as { cause?: Error }).cause?.message ?? (error as Error).message;
      }
      if (tried >= WAITS_MS.length) {
        const options = { certain: true, ...(cause !== undefined && { cause }) };
        // Nobody at the metadata server's address means that this is no machine of Google's.
        const isElsewhere = this.#options.credentials === undefined && nameless(cause);
        throw new ProviderError(
          isElsewhere ? "auth" : "unreachable",
          `No token from ${new URL(url).host}: ${trouble}`,
          {
            ...options,
            ...(isElsewhere && { remedy }),
          },
        );
      }
      await clock.sleep(WAITS_MS[tried]!);
    }
  }
}

function parsed(text: string): object | undefined {
  try {
    return JSON.parse(text) ?? undefined;
  } catch {
    return undefined;
  }
}

function nameless(error: unknown): boolean {
  const { code } = ((error as { cause?: unknown } | undefined)?.cause ?? {}) as { code?: string };
  return code === "ENOTFOUND" || code === "EAI_AGAIN";
}

function readKey(given: string | GoogleKey): GoogleKey {
  const where = typeof given === "string" ? placed(given) : "";
  const refuse = (what: string): never => {
    throw new ProviderError("auth", `What was given as credentials ${where}${what}`, { certain: true, remedy });
  };
  const read = typeof given === "string" ? givenJson(given, refuse) : given;
  const key = (typeof read === "object" && read !== null ? read : {}) as GoogleKey;
  const type = key.type ?? "service_account";
  if (type !== "service_account" && type !== "authorized_user") {
    const kind = String(type).slice(0, 40);
    return refuse(`is of the type "${kind}", and only keys of service accounts and a user's own are understood`);
  }
  if (type === "service_account" && !(key.client_email && key.private_key))
    return refuse("has no client_email or no private_key");
  return { ...key, type };
}

/** "I am this service account", signed with its key (RFC 7523). */
function statement(key: GoogleKey, audience: string, nowMs: number): string {
  const encode = (value: object): string => Buffer.from(JSON.stringify(value)).toString("base64url");
  const issuedAt = Math.floor(nowMs / 1000);
  const header = { alg: "RS256", typ: "JWT", ...(key.private_key_id && { kid: key.private_key_id }) };
  const claims = { iss: key.client_email, scope: SCOPE, aud: audience, iat: issuedAt, exp: issuedAt + 3600 };
  const signed = `${encode(header)}.${encode(claims)}`;
  try {
    return `${signed}.${createSign("RSA-SHA256").update(signed).sign(key.private_key!).toString("base64url")}`;
  } catch {
    throw new ProviderError("auth", "The private_key of the credentials is none that can sign", {
      certain: true,
      remedy,
    });
  }
}
