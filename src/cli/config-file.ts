// Loads stillwake.config.{ts,mts,js,mjs} from the working directory, and price tables.
import fs from "node:fs";
import path from "node:path";
import { pathToFileURL } from "node:url";
import { InvalidInput } from "../errors.ts";
import { checkPrices, type PriceTable } from "../orchestrator/prices.ts";
import { prepareImport, typescriptRemedy } from "../worker/runner/typescript.ts";

/** In the order of preference. */
export const CONFIG_FILES = [
  "stillwake.config.ts",
  "stillwake.config.mts",
  "stillwake.config.js",
  "stillwake.config.mjs",
];

/** `file` is the value of --config. Undefined without it and without a file of a default name. */
export function findConfigFile(file: string | undefined): string | undefined {
  const found = file ?? CONFIG_FILES.find((name) => fs.existsSync(name));
  return found === undefined ? undefined : path.resolve(found);
}

/** The message for a command that needs pipelines. Names what was searched. */
export function noPipelines(file: string | undefined): string {
  const found = findConfigFile(file);
  return `No pipelines are configured: ${found ? `${found} names none` : `${process.cwd()} has no stillwake.config file`}`;
}

/** An empty object without a file. `reload` reads the file again, after the given number of changes. */
export async function loadConfigFile(file: string | undefined, reload = 0): Promise<Record<string, unknown>> {
  const full = findConfigFile(file);
  if (full === undefined) return {};
  if (!fs.existsSync(full)) {
    throw new InvalidInput(`${full} does not exist`, { field: "config", remedy: "Check --config" });
  }
  let loaded: { default?: unknown };
  try {
    await prepareImport(full);
    // Node keeps each module; another query makes it another module.
    loaded = await import(`${pathToFileURL(full).href}${reload > 0 ? `?reload=${reload}` : ""}`);
  } catch (error) {
    if ((error as { code?: string }).code !== "ERR_UNKNOWN_FILE_EXTENSION") throw toLoadError(full, error);
    throw new InvalidInput(`This Node (${process.version}) cannot run TypeScript: ${full}`, {
      cause: error,
      field: "config",
      remedy: typescriptRemedy,
    });
  }
  if (typeof loaded.default !== "object" || loaded.default === null) {
    throw new InvalidInput(`${full} has no default export`, {
      field: "config",
      remedy: "export default defineConfig({ … })",
    });
  }
  return resolvePaths(loaded.default as Record<string, unknown>, path.dirname(full));
}

/** The stack of an error that the file throws names the file; a syntax error does not. */
function toLoadError(file: string, error: unknown): unknown {
  if (!(error instanceof SyntaxError)) return error;
  return new InvalidInput(`${file} cannot be parsed: ${error.message}`, {
    cause: error,
    field: "config",
    remedy: `node --check ${file} shows where`,
  });
}

/** Paths in the file are relative to the file. */
function resolvePaths(config: Record<string, unknown>, dir: string): Record<string, unknown> {
  const { pipelines, scratch, store } = config;
  const resolve = (value: unknown) => (typeof value === "string" ? path.resolve(dir, value) : value);
  return {
    ...config,
    ...(pipelines !== undefined && {
      pipelines: Array.isArray(pipelines) ? pipelines.map(resolve) : resolve(pipelines),
    }),
    ...(scratch !== undefined && { scratch: resolve(scratch) }),
    ...(/^file:(?!\/)/.test(String(store)) && {
      store: pathToFileURL(path.resolve(dir, decodeURIComponent(String(store).slice(5)))).href,
    }),
  };
}

/** The price tables of a JSON file (--prices or STILLWAKE_PRICES), or else those of the configuration. */
export function readPrices(file: string | undefined, configured: unknown): PriceTable | undefined {
  if (file === undefined) return configured === undefined ? undefined : checkPrices(configured);
  let text: string;
  try {
    text = fs.readFileSync(file, "utf8");
  } catch (error) {
    throw new InvalidInput(`The prices cannot be read from ${file}: ${(error as { code?: string }).code}`, {
      field: "prices",
      remedy: "Check --prices and STILLWAKE_PRICES",
    });
  }
  try {
    return checkPrices(JSON.parse(text));
  } catch (error) {
    if (!(error instanceof SyntaxError)) throw error;
    throw new InvalidInput(`${file} is not JSON: ${error.message}`, {
      field: "prices",
      remedy: "See docs/run/cost.md",
    });
  }
}
