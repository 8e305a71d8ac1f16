// Seals and opens values of inputs: AES-256-GCM with keys that only enqueuers and workers have. A sealed value is bound
// to its job or pipeline, its tenant and its path, so that a copy in another job, tenant or field cannot be opened.
//
//   j.<key>.<nonce>.<ciphertext and tag>   bound to the job, its tenant and the path
//   p.<key>.<nonce>.<ciphertext and tag>   bound to the pipeline, its tenant and the path: for schedules
import {
  createCipheriv,
  createDecipheriv,
  createHmac,
  createSecretKey,
  type KeyObject,
  randomBytes,
} from "node:crypto";
import { labelPaths, readLabel } from "../contract/labels.ts";
import { isSealedValue, mapPaths } from "../contract/sealed-paths.ts";
import { InvalidInput, StillwakeError } from "../errors.ts";

/** Keys by id: `current` seals, all open. Each is 32 bytes in base64; see newSealKey(). */
export interface SealKeys {
  current: string;
  keys: Readonly<Record<string, string>>;
}

export interface KeyRing {
  current: string;
  keys: ReadonlyMap<string, KeyObject>;
}

/** The owner of the input. Without a job, the value is bound to the pipeline. */
interface InputOwner {
  pipeline: string;
  tenant: string | null;
  job: string | null;
}

/** A new random key for sealing, in base64. */
export function newSealKey(): string {
  return randomBytes(32).toString("base64");
}

/** Parses an object, or "k2:base64,k1:base64" where the first key seals. Errors name only the id of a key. */
export function readSealKeys(source: SealKeys | string | undefined): KeyRing | undefined {
  if (source === undefined || source === "") return undefined;
  const { current, keys } = typeof source === "string" ? parseKeys(source) : (source ?? {});
  const entries = typeof keys === "object" && keys !== null ? Object.entries(keys) : [];
  const ring = new Map(entries.map(([id, key]) => [id, readKey(id, key)]));
  if (typeof current === "string" && ring.has(current)) return { current, keys: ring };
  throw invalidKeys("The current key is not among the sealKeys");
}

function parseKeys(text: string): SealKeys {
  const pairs = text.split(",").map((pair) => {
    const [id = "", key = ""] = pair.trim().split(/:(.*)/s);
    return [id, key] as const;
  });
  return { current: pairs[0]![0], keys: Object.fromEntries(pairs) };
}

function readKey(id: string, key: unknown): KeyObject {
  const hasId = /^[\w-]{1,64}$/.test(id);
  // A text without an id may be the key itself and must not be shown.
  if (!hasId) throw invalidKeys("A seal key has no valid id: use letters, digits, _ and -");
  const bytes = typeof key === "string" ? Buffer.from(key, "base64") : Buffer.alloc(0);
  if (bytes.length === 32) return createSecretKey(bytes);
  throw invalidKeys(`Seal key "${id}" is not 32 bytes in base64`);
}

function invalidKeys(message: string): InvalidInput {
  return new InvalidInput(message, {
    field: "sealKeys",
    remedy:
      'Pass { current: "k1", keys: { k1: newSealKey() } }, or "k1:" followed by the output of `openssl rand -base64 32`',
  });
}

/**
 * Seals an input for a client that has neither the contract nor the keys, such as one that enqueues over HTTP. Binds
 * the values to pipeline, tenant and path. Does not validate the input.
 */
export function seal<Input>(
  pipeline: {
    readonly name: string;
    readonly options: { readonly sealed?: readonly string[]; readonly tenant?: unknown };
  },
  input: Input,
  options: { sealKeys: SealKeys | string; tenant?: string },
): Input {
  const paths = labelPaths(pipeline.options.tenant);
  const tenant = options.tenant ?? (paths ? readLabel(paths, input, "tenant", "input") : null);
  const owner = { pipeline: pipeline.name, tenant, job: null };
  return sealInput(readSealKeys(options.sealKeys), pipeline.options.sealed ?? [], input, owner, [tenant]) as Input;
}

/**
 * Seals the values at the paths; values that are already sealed or references stay unchanged. Rejects a label that
 * contains a value to be sealed, because labels are stored in plain text.
 */
export function sealInput(
  ring: KeyRing | undefined,
  paths: readonly string[],
  input: unknown,
  owner: InputOwner,
  labels: readonly (string | null)[],
): unknown {
  return mapPaths(input, paths, (value, at) => {
    if (isSealedValue(value)) return value;
    if (!ring) {
      throw new InvalidInput(`Pipeline "${owner.pipeline}" seals input.${at}, but there is no key to seal it with`, {
        field: `input.${at}`,
        remedy: 'Pass sealKeys (STILLWAKE_SEAL_KEYS for commands), or a reference: secret("name")',
      });
    }
    for (const label of labels) if (label !== null) rejectLabel(label, value, at);
    return { $sealed: sealText(ring, JSON.stringify(value), owner, at) };
  });
}

function rejectLabel(label: string, value: unknown, at: string): void {
  if (typeof value === "object" && value !== null) {
    for (const child of Object.values(value)) rejectLabel(label, child, at);
    return;
  }
  const text = String(value);
  if (text.length >= 8 ? !label.includes(text) : label !== text || typeof value !== "string") return;
  throw new InvalidInput(`The key, tenant or idempotency key contains the sealed value of input.${at}`, {
    field: `input.${at}`,
    remedy: "Use another value or a hash: labels are visible to everyone who can see the job",
  });
}

function sealText({ current, keys }: KeyRing, text: string, owner: InputOwner, at: string): string {
  const key = keys.get(current)!;
  const binding = bindingOf(owner, at);
  // Deterministic for pipelines, so that registering an unchanged schedule again does not look like a change.
  const nonce = owner.job === null ? deriveNonce(key, binding, text) : randomBytes(12);
  const cipher = createCipheriv("aes-256-gcm", key, nonce);
  cipher.setAAD(binding);
  const sealed = Buffer.concat([cipher.update(text, "utf8"), cipher.final(), cipher.getAuthTag()]);
  return [owner.job === null ? "p" : "j", current, nonce.toString("base64url"), sealed.toString("base64url")].join(".");
}

/** Depends on key, binding and text, so that no nonce is used for two texts. */
function deriveNonce(key: KeyObject, binding: Buffer, text: string): Buffer {
  const nonceKey = createHmac("sha256", key).update("stillwake nonce").digest();
  return createHmac("sha256", nonceKey)
    .update(`${binding.length}.`)
    .update(binding)
    .update(text)
    .digest()
    .subarray(0, 12);
}

function bindingOf({ pipeline, tenant, job }: InputOwner, at: string): Buffer {
  return Buffer.from(JSON.stringify(job === null ? ["p", pipeline, tenant, at] : ["j", job, tenant, at]));
}

/** Opens a sealed value. Throws SEALED with the id of the key, never with a value. */
export function openSealed(ring: KeyRing | undefined, sealed: string, owner: InputOwner, at: string): unknown {
  const [scope, id = "", nonce = "", text = ""] = sealed.split(".");
  const key = ring?.keys.get(id);
  if (!key) {
    const available = ring ? `it has ${[...ring.keys.keys()].join(", ")}` : "it has none";
    throw new StillwakeError(
      "SEALED",
      `input.${at} is sealed with key "${id}", which this worker does not have (${available})`,
      {
        field: `input.${at}`,
        remedy: `Add key "${id}" to the sealKeys of the worker (STILLWAKE_SEAL_KEYS) and retry the job`,
      },
    );
  }
  try {
    const bytes = Buffer.from(text, "base64url");
    const decipher = createDecipheriv("aes-256-gcm", key, Buffer.from(nonce, "base64url"), { authTagLength: 16 });
    decipher.setAAD(bindingOf(scope === "p" ? { ...owner, job: null } : owner, at));
    decipher.setAuthTag(bytes.subarray(-16));
    return JSON.parse(Buffer.concat([decipher.update(bytes.subarray(0, -16)), decipher.final()]).toString());
  } catch {
    throw new StillwakeError("SEALED", `input.${at} cannot be unsealed with key "${id}"`, {
      field: `input.${at}`,
      remedy: `It was sealed for another job, tenant or field, or with another key of the same id. Check key "${id}", and enqueue the job again`,
    });
  }
}
