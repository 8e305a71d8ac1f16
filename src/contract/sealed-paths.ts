// Which parts of an input are nobody's business but the worker's. A contract names their paths; what is stored there is sealed with a key that
// neither Postgres nor the server has, or is the name of a secret that the worker looks up. Safe to import from a web bundle: sealing.ts has the keys.
import { InvalidInput } from "../errors.ts";

/** What is stored at a sealed path: { "$sealed": "…" } or { "$secret": "name" }. */
type StandIn = { readonly $sealed: string } | { readonly $secret: string };

/**
 * The name of a secret instead of its value, at a sealed path of an input. The worker looks it up when the job runs; it is never stored. Its type
 * is that of the value it stands for.
 */
export function secret<Value = string>(name: string): Value {
  if (typeof name === "string" && secretName.test(name)) return Object.freeze({ $secret: name }) as Value;
  throw new InvalidInput(`${JSON.stringify(name)} cannot name a secret`, {
    field: "name",
    remedy: "Use 1 to 100 letters, digits and _ . - beginning with a letter",
  });
}

const secretName = /^[A-Za-z][\w.-]{0,99}$/;
/** How it is bound, the id of the key, the nonce, and the ciphertext with its tag. stillwake.stands_in() knows the same form. */
const sealedText = /^[jp]\.[\w-]{1,64}\.[\w-]{16}\.[\w-]{22,}$/;

/** True for what may stand at a sealed path. */
export function isStandIn(value: unknown): value is StandIn {
  if (typeof value !== "object" || value === null || Object.keys(value).length !== 1) return false;
  const { $sealed, $secret } = value as { $sealed?: unknown; $secret?: unknown };
  return (
    (typeof $sealed === "string" && sealedText.test($sealed)) ||
    (typeof $secret === "string" && secretName.test($secret))
  );
}

/** Paths are keys joined by dots; * stands for every element of an array. stillwake.register_pipeline() knows the same rule. */
export function checkPaths(pipeline: string, paths: unknown): void {
  const right = (path: unknown) => typeof path === "string" && path.length <= 200 && pathRule.test(path);
  if (Array.isArray(paths) && paths.length <= 50 && paths.every(right)) return;
  throw new InvalidInput(`sealed ${JSON.stringify(paths)} of pipeline "${pipeline}" is not valid`, {
    field: "sealed",
    remedy: 'Give paths of the input in an array: ["githubToken", "auth.password", "accounts.*.token"]',
  });
}

const pathRule = /^(?!.*__proto__)[A-Za-z_][\w-]*(\.([A-Za-z_][\w-]*|\d{1,9}|\*))*$/;

/** A copy of the input with what stands at the paths changed. Nothing is done where nothing or null stands. `at` is the place, such as accounts.0.token. */
export function changeAt(
  input: unknown,
  paths: readonly string[],
  change: (value: unknown, at: string) => unknown,
): unknown {
  return paths.reduce((value, path) => changed(value, path.split("."), 0, "", change), input);
}

function changed(
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
    changed(child, path, depth + 1, at === "" ? String(name) : `${at}.${name}`, change);
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

/** For those who enqueue without keys, to say which field it is. Whoever does not ask is refused by stillwake.enqueue_many(). */
export function refusePlain(paths: readonly string[], input: unknown, at = "input"): void {
  changeAt(input, paths, (value, place) => {
    if (isStandIn(value)) return value;
    throw new InvalidInput(`${at}.${place} is stored sealed, and a plain value was given`, {
      field: `${at}.${place}`,
      remedy: 'Pass {"$secret": "name"}, or a value that was sealed where the keys are: {"$sealed": "…"}',
    });
  });
}

/** Every value that stands at one of the paths. */
export function valuesAt(input: unknown, paths: readonly string[]): unknown[] {
  const found: unknown[] = [];
  changeAt(input, paths, (value) => {
    found.push(value);
    return value;
  });
  return found;
}

/**
 * A schema knows what it is given, not what stands in for it: each stand-in is a text of 36 characters while the schema looks. `back` puts them
 * where the schema has left them.
 */
export function withPlaceholders(
  input: unknown,
  paths: readonly string[],
): { input: unknown; back(value: unknown): unknown } {
  const standIns = new Map<string, StandIn>();
  const shown = changeAt(input, paths, (value) => {
    if (!isStandIn(value)) return value;
    const placeholder = crypto.randomUUID();
    standIns.set(placeholder, value);
    return placeholder;
  });
  const back = (value: unknown) => {
    let left = standIns.size;
    const whole = changeAt(value, paths, (found) => {
      const standIn = typeof found === "string" ? standIns.get(found) : undefined;
      if (standIn) left -= 1;
      return standIn ?? found;
    });
    if (left === 0) return whole;
    throw new InvalidInput("The pipeline's schema changes or moves what stands at a sealed path", {
      field: "input",
      remedy: "Let the schema leave it as it is, or pass the value itself instead of a reference",
    });
  };
  return { input: shown, back };
}
