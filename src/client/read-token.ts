// Read tokens: signed, short-lived tokens that let a customer's browser follow one job, or all jobs of one key.
// They are not stored: the server verifies the signature, and any process with the secret can sign one.
import { createHmac, timingSafeEqual } from "node:crypto";
import { InvalidInput } from "../errors.ts";
import { checkId } from "../ids.ts";
import { checkLabel } from "../payload.ts";
import { type Duration, durationMs } from "../time.ts";

export interface ReadTokenOptions {
  /** Gives access to this job, */
  job?: string;
  /** or to all jobs of one key of a pipeline, past ones included. */
  pipeline?: string;
  key?: string;
  /** The tenant of those jobs: tenants share the key space. Without one, jobs without a tenant. */
  tenant?: string;
  /** At most "24h". Default "1h". */
  expiresIn?: Duration;
}

/** What a read token gives access to. */
export interface ReadScope {
  job?: string;
  pipeline?: string;
  key?: string;
  tenant?: string;
  expiresAt: Date;
}

const PREFIX = "swr_";
const MAX_MS = 24 * 3600 * 1000;

export function signReadToken(secrets: readonly string[], options: ReadTokenOptions): string {
  const { job, pipeline, key, tenant, expiresIn = "1h" } = options;
  if ((job === undefined) === (pipeline === undefined && key === undefined)) {
    throw new InvalidInput("A read token is for one job, or for one key of a pipeline", {
      field: "job",
      remedy: "Pass job, or pipeline and key",
    });
  }
  const ms = durationMs(expiresIn, "expiresIn");
  if (ms < 1000 || ms > MAX_MS) {
    throw new InvalidInput(`expiresIn ${expiresIn} is not from 1s to 24h`, {
      field: "expiresIn",
      remedy: "Use a shorter time, and sign a new token when it expires",
    });
  }
  const scope =
    job !== undefined
      ? { j: checkId(job, "job").toLowerCase() }
      : {
          p: checkLabel(pipeline, "pipeline"),
          k: checkLabel(key, "key"),
          ...(tenant !== undefined && { t: checkLabel(tenant, "tenant") }),
        };
  const payload = Buffer.from(JSON.stringify({ ...scope, e: Math.floor((Date.now() + ms) / 1000) })).toString(
    "base64url",
  );
  return `${PREFIX}${payload}.${sign(secrets[0]!, payload)}`;
}

/** Undefined when the signature is invalid or the token has expired. */
export function checkReadToken(secrets: readonly string[], token: string): ReadScope | undefined {
  const match = /^swr_([\w-]{1,8000})\.([\w-]{43})$/.exec(token);
  if (!match) return undefined;
  const [, payload, signed] = match as unknown as [string, string, string];
  const valid = secrets.some((secret) => timingSafeEqual(Buffer.from(sign(secret, payload)), Buffer.from(signed)));
  if (!valid) return undefined;
  const { j, p, k, t, e } = JSON.parse(Buffer.from(payload, "base64url").toString()) as Record<string, string> & {
    e: number;
  };
  const expiresAt = new Date(e * 1000);
  if (!(expiresAt.getTime() > Date.now())) return undefined;
  if (j !== undefined) return { job: j, expiresAt };
  return { pipeline: p!, key: k!, ...(t !== undefined && { tenant: t }), expiresAt };
}

/** Several during a rotation: the first signs, all are accepted. */
export function checkSecrets(secret: string | readonly string[] | undefined): readonly string[] {
  const secrets = typeof secret === "string" ? secret.split(",").map((part) => part.trim()) : (secret ?? []);
  if (secrets.every((part) => typeof part === "string" && part.length >= 32)) return secrets;
  throw new InvalidInput("secret is shorter than 32 characters", {
    field: "secret",
    remedy:
      "Generate one with `openssl rand -base64 32` and pass it to the server and to clients that sign read tokens",
  });
}

function sign(secret: string, payload: string): string {
  return createHmac("sha256", secret).update(`stillwake read token.${payload}`).digest("base64url");
}
