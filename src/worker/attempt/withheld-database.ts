// The remedy for a database connection of user code that failed while the variables it may need are withheld from it.

const DATABASE_VARIABLE = /DATABASE_URL|POSTGRES|^PG[A-Z]+$/;
/** Messages of drivers and libraries that have no connection string, or no password in it. */
const NO_CONNECTION_STRING = /DATABASE_URL|connection ?string|\bPG[A-Z]{4,}\b|client password must be a string/i;
/** Invalid authorization, wrong password, unknown database: without settings a driver uses the name of the system's user. */
const REFUSED_LOGIN = new Set(["28000", "28P01", "3D000"]);
const LOOPBACK = new Set(["127.0.0.1", "::1"]);

interface ConnectionError {
  code?: unknown;
  message?: unknown;
  address?: unknown;
  port?: unknown;
  errors?: unknown;
  cause?: unknown;
}

/** Undefined when the error is another one, or no variable with a database is withheld. */
export function remedyForWithheld(
  error: unknown,
  withheld: readonly string[],
  env: Readonly<Record<string, string | undefined>>,
): string | undefined {
  const names = withheld.filter((name) => DATABASE_VARIABLE.test(name));
  if (names.length === 0 || !isMissingConnection(error, 0)) return undefined;
  const others = names.filter((name) => !name.startsWith("STILLWAKE_"));
  if (others.length > 0) {
    return `Pipeline code does not get ${others.join(", ")}: change env of the worker in stillwake.config.ts (env.withhold, env.pass), or set another variable for this code`;
  }
  if (env.DATABASE_URL) return undefined;
  return `Pipeline code does not get ${names.join(", ")}: set DATABASE_URL for it, or pass the variable with env.pass in stillwake.config.ts`;
}

function isMissingConnection(thrown: unknown, depth: number): boolean {
  try {
    return depth <= 3 && typeof thrown === "object" && thrown !== null && describesIt(thrown, depth);
  } catch {
    // The properties of an error that user code threw may throw themselves.
    return false;
  }
}

function describesIt({ code, message, address, port, errors, cause }: ConnectionError, depth: number): boolean {
  if (code === "ECONNREFUSED" && port === 5432 && LOOPBACK.has(String(address))) return true;
  if (REFUSED_LOGIN.has(String(code)) || NO_CONNECTION_STRING.test(String(message))) return true;
  return [...(Array.isArray(errors) ? errors : []), cause].some((inner) => isMissingConnection(inner, depth + 1));
}
