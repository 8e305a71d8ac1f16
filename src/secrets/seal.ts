// Sealing and opening: AES-256-GCM with keys that only enqueuers and workers have. What is sealed is bound to where it stands, so that a value that
// somebody copies into another job, another tenant's or another field does not open there.
//
//   j.<key>.<nonce>.<ciphertext and tag>   bound to the job, its tenant and the path
//   p.<key>.<nonce>.<ciphertext and tag>   bound to the pipeline, the tenant and the path: for schedules, whose jobs do not exist yet
import {
  createCipheriv,
  createDecipheriv,
  createHmac,
  createSecretKey,
  type KeyObject,
  randomBytes,
} from "node:crypto";
import { changeAt, isStandIn } from "../contract/sealed-paths.ts";
import { InvalidInput, StillwakeError } from "../errors.ts";

/** Keys by their ids: one seals, all open. Each is 32 bytes in base64; see newSealKey(). */
export interface SealKeys {
  current: string;
  keys: Readonly<Record<string, string>>;
}

export interface KeyRing {
  current: string;
  keys: ReadonlyMap<string, KeyObject>;
}

/** Whose input it is. Without a job, what is sealed is bound to the pipeline. */
interface InputOwner {
  pipeline: string;
  tenant: string | null;
  job: string | null;
}

/** A new key for sealing, in base64. */
export function newSealKey(): string {
  return randomBytes(32).toString("base64");
}

/** From an object, or from "k2:base64,k1:base64", of which the first seals. Says nothing of a key that is wrong but its id. */
export function readSealKeys(given: SealKeys | string | undefined): KeyRing | undefined {
  if (given === undefined || given === "") return undefined;
  const { current, keys } = typeof given === "string" ? fromText(given) : (given ?? {});
  const entries = typeof keys === "object" && keys !== null ? Object.entries(keys) : [];
  const ring = new Map(entries.map(([id, key]) => [id, readKey(id, key)]));
  if (typeof current === "string" && ring.has(current)) return { current, keys: ring };
  throw wrongKeys("The keys for sealing have none that is current");
}

function fromText(text: string): SealKeys {
  const pairs = text.split(",").map((pair) => {
    const [id = "", key = ""] = pair.trim().split(/:(.*)/s);
    return [id, key] as const;
  });
  return { current: pairs[0]![0], keys: Object.fromEntries(pairs) };
}

function readKey(id: string, key: unknown): KeyObject {
  const named = /^[\w-]{1,64}$/.test(id);
  // A text without an id may be nothing but a key, and must not be shown.
  if (!named) throw wrongKeys("A key for sealing has no id of letters, digits, _ and -");
  const bytes = typeof key === "string" ? Buffer.from(key, "base64") : Buffer.alloc(0);
  if (bytes.length === 32) return createSecretKey(bytes);
  throw wrongKeys(`Key "${id}" for sealing is not 32 bytes in base64`);
}

function wrongKeys(message: string): InvalidInput {
  return new InvalidInput(message, {
    field: "sealKeys",
    remedy: 'Pass { current: "k1", keys: { k1: newSealKey() } }, or "k1:" and what `openssl rand -base64 32` prints',
  });
}

/**
 * The input for those who enqueue it where no contract and no key is, such as over HTTP. It is bound to the pipeline, the tenant and the path, and
 * not checked by the schema.
 */
export function seal<Input>(
  pipeline: { readonly name: string; readonly options: { readonly sealed?: readonly string[] } },
  input: Input,
  options: { sealKeys: SealKeys | string; tenant?: string },
): Input {
  const tenant = options.tenant ?? null;
  const owner = { pipeline: pipeline.name, tenant, job: null };
  return sealInput(readSealKeys(options.sealKeys), pipeline.options.sealed ?? [], input, owner, [tenant]) as Input;
}

/**
 * The input with what stands at the paths sealed; what is sealed or a reference already stays as it is. `labels` are stored beside it for all to
 * see: one that carries what is to be sealed is refused.
 */
export function sealInput(
  ring: KeyRing | undefined,
  paths: readonly string[],
  input: unknown,
  owner: InputOwner,
  labels: readonly (string | null)[],
): unknown {
  return changeAt(input, paths, (value, at) => {
    if (isStandIn(value)) return value;
    if (!ring) {
      throw new InvalidInput(
        `Pipeline "${owner.pipeline}" has input.${at} sealed, and there is no key to seal it with`,
        {
          field: `input.${at}`,
          remedy: 'Give sealKeys (STILLWAKE_SEAL_KEYS for commands), or a reference: secret("name")',
        },
      );
    }
    for (const label of labels) if (label !== null) refuseLabel(label, value, at);
    return { $sealed: sealText(ring, JSON.stringify(value), owner, at) };
  });
}

function refuseLabel(label: string, value: unknown, at: string): void {
  if (typeof value === "object" && value !== null) {
    for (const child of Object.values(value)) refuseLabel(label, child, at);
    return;
  }
  const text = String(value);
  if (text.length >= 8 ? !label.includes(text) : label !== text || typeof value !== "string") return;
  throw new InvalidInput(`The key, tenant or idempotency key carries what is sealed at input.${at}`, {
    field: `input.${at}`,
    remedy: "Make it of something else, or of a hash: everybody who sees the job sees it",
  });
}

function sealText({ current, keys }: KeyRing, text: string, owner: InputOwner, at: string): string {
  const key = keys.get(current)!;
  const bound = boundTo(owner, at);
  // What is bound to a pipeline is sealed the same way each time: a schedule that is said again has not changed.
  const nonce = owner.job === null ? nonceOf(key, bound, text) : randomBytes(12);
  const cipher = createCipheriv("aes-256-gcm", key, nonce);
  cipher.setAAD(bound);
  const sealed = Buffer.concat([cipher.update(text, "utf8"), cipher.final(), cipher.getAuthTag()]);
  return [owner.job === null ? "p" : "j", current, nonce.toString("base64url"), sealed.toString("base64url")].join(".");
}

/** Different for all that differs, so that no nonce is used for two texts. */
function nonceOf(key: KeyObject, bound: Buffer, text: string): Buffer {
  const own = createHmac("sha256", key).update("stillwake nonce").digest();
  return createHmac("sha256", own).update(`${bound.length}.`).update(bound).update(text).digest().subarray(0, 12);
}

function boundTo({ pipeline, tenant, job }: InputOwner, at: string): Buffer {
  return Buffer.from(JSON.stringify(job === null ? ["p", pipeline, tenant, at] : ["j", job, tenant, at]));
}

/** What was sealed. Throws SEALED, with the id of the key and never a value. */
export function openSealed(ring: KeyRing | undefined, sealed: string, owner: InputOwner, at: string): unknown {
  const [bond, id = "", nonce = "", text = ""] = sealed.split(".");
  const key = ring?.keys.get(id);
  if (!key) {
    const known = ring ? `it has ${[...ring.keys.keys()].join(", ")}` : "it has none";
    throw new StillwakeError(
      "SEALED",
      `input.${at} is sealed with key "${id}", which this worker does not have (${known})`,
      {
        field: `input.${at}`,
        remedy: `Give the worker key "${id}" among its sealKeys (STILLWAKE_SEAL_KEYS) and retry the job`,
      },
    );
  }
  try {
    const bytes = Buffer.from(text, "base64url");
    const decipher = createDecipheriv("aes-256-gcm", key, Buffer.from(nonce, "base64url"), { authTagLength: 16 });
    decipher.setAAD(boundTo(bond === "p" ? { ...owner, job: null } : owner, at));
    decipher.setAuthTag(bytes.subarray(-16));
    return JSON.parse(Buffer.concat([decipher.update(bytes.subarray(0, -16)), decipher.final()]).toString());
  } catch {
    throw new StillwakeError("SEALED", `input.${at} does not open with key "${id}"`, {
      field: `input.${at}`,
      remedy: `It was sealed for another job, tenant or field, or with another key of that id. Check key "${id}", and enqueue the job again`,
    });
  }
}
