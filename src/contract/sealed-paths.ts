// Sealed paths: parts of an input that only workers can read. The stored value is either encrypted with a key that neither Postgres nor the
// server has, or the name of a secret that the worker looks up. Part of `stillwake/contract`; secrets/seal.ts has the keys.
import { InvalidInput } from "../errors.ts";

/** The stored value at a sealed path: { "$sealed": "…" } or { "$secret": "name" }. */
type SealedValue = { readonly $sealed: string } | { readonly $secret: string };

/**
 * A reference to a secret, for a sealed path of an input. The worker looks up the value when the job runs; the value
 * is never stored. Typed as the value it refers to.
 */
export function secret<Value = string>(name: string): Value {
  if (typeof name === "string" && secretName.test(name)) return Object.freeze({ $secret: name }) as Value;
  throw new InvalidInput(`${JSON.stringify(name)} is not a valid secret name`, {
    field: "name",
    remedy: "Use 1 to 100 letters, digits and _ . - starting with a letter",
  });
}

const secretName = /^[A-Za-z][\w.-]{0,99}$/;
/** Binding, key id, nonce, and ciphertext with its tag. stillwake.is_sealed_or_reference() checks the same form. */
const sealedText = /^[jp]\.[\w-]{1,64}\.[\w-]{16}\.[\w-]{22,}$/;

/** Whether the value may be stored at a sealed path. */
export function isSealedValue(value: unknown): value is SealedValue {
  if (typeof value !== "object" || value === null || Object.keys(value).length !== 1) return false;
  const { $sealed, $secret } = value as { $sealed?: unknown; $secret?: unknown };
  return (
    (typeof $sealed === "string" && sealedText.test($sealed)) ||
    (typeof $secret === "string" && secretName.test($secret))
  );
}

/** Paths are keys joined by dots; * matches every element of an array. stillwake.register_pipeline() has the same rule. */
export function checkSealedPaths(pipeline: string, paths: unknown): void {
  const isPath = (path: unknown) => typeof path === "string" && path.length <= 200 && pathRule.test(path);
  if (Array.isArray(paths) && paths.length <= 50 && paths.every(isPath)) return;
  throw new InvalidInput(`sealed ${JSON.stringify(paths)} of pipeline "${pipeline}" is not valid`, {
    field: "sealed",
    remedy: 'Pass an array of input paths: ["githubToken", "auth.password", "accounts.*.token"]',
  });
}

const pathRule = /^(?!.*__proto__)[A-Za-z_][\w-]*(\.([A-Za-z_][\w-]*|\d{1,9}|\*))*$/;

/**
 * A copy of the input with the values at the paths replaced by `change`. Missing and null values are left alone.
 * `at` is the path of one value, such as accounts.0.token.
 */
export function mapPaths(
  input: unknown,
  paths: readonly string[],
  change: (value: unknown, at: string) => unknown,
): unknown {
  return paths.reduce((value, path) => mapPath(value, path.split("."), 0, "", change), input);
}

function mapPath(
  value: unknown,
  path: string[],
  depth: number,
  at: string,
  change: (value: unknown, at: string) => unknown,
): unknown {
  if (value === undefined || value === null) return value;
  if (depth === path.length) return change(value, at);
  const key = path[depth]!;
  const inside = (child: unknown, name: string | number) =>
    mapPath(child, path, depth + 1, at === "" ? String(name) : `${at}.${name}`, change);
  if (key === "*" && Array.isArray(value)) return value.map(inside);
  if (key === "*" && typeof value === "object") {
    return Object.fromEntries(Object.entries(value).map(([name, child]) => [name, inside(child, name)]));
  }
  if (typeof value !== "object" || !Object.hasOwn(value, key)) return value;
  const child = (value as Record<string, unknown>)[key];
  const next = inside(child, key);
  if (next === child) return value;
  return Array.isArray(value) ? value.with(Number(key), next) : { ...value, [key]: next };
}

/** For callers without seal keys: names the field. stillwake.enqueue_many() rejects plain values in any case. */
export function rejectPlainValues(paths: readonly string[], input: unknown, at = "input"): void {
  mapPaths(input, paths, (value, path) => {
    if (isSealedValue(value)) return value;
    throw new InvalidInput(`${at}.${path} must be sealed, but a plain value was passed`, {
      field: `${at}.${path}`,
      remedy: 'Pass {"$secret": "name"}, or a value sealed by a client with keys: {"$sealed": "…"}',
    });
  });
}

/** All values at the paths. */
export function readPaths(input: unknown, paths: readonly string[]): unknown[] {
  const found: unknown[] = [];
  mapPaths(input, paths, (value) => {
    found.push(value);
    return value;
  });
  return found;
}

/**
 * A schema describes the plain values, not sealed ones: replaces each sealed value by a string of 36 characters for
 * validation. `restore` puts the sealed values back into the schema's result.
 */
export function withPlaceholders(
  input: unknown,
  paths: readonly string[],
): { input: unknown; restore(value: unknown): unknown } {
  const sealedValues = new Map<string, SealedValue>();
  const replaced = mapPaths(input, paths, (value) => {
    if (!isSealedValue(value)) return value;
    const placeholder = crypto.randomUUID();
    sealedValues.set(placeholder, value);
    return placeholder;
  });
  const restore = (value: unknown) => {
    let remaining = sealedValues.size;
    const restored = mapPaths(value, paths, (found) => {
      const sealedValue = typeof found === "string" ? sealedValues.get(found) : undefined;
      if (sealedValue) remaining -= 1;
      return sealedValue ?? found;
    });
    if (remaining === 0) return restored;
    throw new InvalidInput("The pipeline's schema changes or moves a value at a sealed path", {
      field: "input",
      remedy: "Let the schema return it unchanged, or pass the value itself instead of a reference",
    });
  };
  return { input: replaced, restore };
}
