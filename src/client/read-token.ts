// A signed word that opens one job, or all jobs of one key, for reading and for a short time: what a customer's browser follows its own job with.
// Nothing of it is stored: it is checked by its signature, and whoever has the secret can make one without asking anybody.
import { createHmac, timingSafeEqual } from "node:crypto";
import { InvalidInput } from "../errors.ts";
import { checkId } from "../ids.ts";
import { checkLabel } from "../payload.ts";
import { type Duration, durationMs } from "../time.ts";

export interface ReadTokenOptions {
  /** The one job it opens, */
  job?: string;
  /** or all jobs of one key of a pipeline, past ones too. */
  pipeline?: string;
  key?: string;
  /** Whose jobs of that key: keys are one space for all tenants. Without one, those that have no tenant. */
  tenant?: string;
  /** How long it is good for, at most "24h". Default "1h". */
  expiresIn?: Duration;
}

/** What a read token opens. */
export interface ReadScope {
  job?: string;
  pipeline?: string;
  key?: string;
  tenant?: string;
  expiresAt: Date;
}

const MARK = "swr_";
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
      remedy: "Make another when it is over: it costs nothing",
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
  return `${MARK}${payload}.${signature(secrets[0]!, payload)}`;
}

/** Undefined when nobody here signed it, or its time is over. */
export function checkReadToken(secrets: readonly string[], token: string): ReadScope | undefined {
  const match = /^swr_([\w-]{1,8000})\.([\w-]{43})$/.exec(token);
  if (!match) return undefined;
  const [, payload, given] = match as unknown as [string, string, string];
  const ours = secrets.some((secret) => timingSafeEqual(Buffer.from(signature(secret, payload)), Buffer.from(given)));
  if (!ours) return undefined;
  const { j, p, k, t, e } = JSON.parse(Buffer.from(payload, "base64url").toString()) as Record<string, string> & {
    e: number;
  };
  const expiresAt = new Date(e * 1000);
  if (!(expiresAt.getTime() > Date.now())) return undefined;
  if (j !== undefined) return { job: j, expiresAt };
  return { pipeline: p!, key: k!, ...(t !== undefined && { tenant: t }), expiresAt };
}

/** Several where one takes the place of another: the first signs, all are accepted. */
export function checkSecrets(secret: string | readonly string[] | undefined): readonly string[] {
  const secrets = typeof secret === "string" ? secret.split(",").map((one) => one.trim()) : (secret ?? []);
  if (secrets.every((one) => typeof one === "string" && one.length >= 32)) return secrets;
  throw new InvalidInput("secret is shorter than 32 characters", {
    field: "secret",
    remedy: "Make one with `openssl rand -base64 32` and give it to the server and to whoever signs read tokens",
  });
}

function signature(secret: string, payload: string): string {
  return createHmac("sha256", secret).update(`stillwake read token.${payload}`).digest("base64url");
}
