// stillwake.config.ts (or .mts, .js, .mjs) in the working directory: what a worker is to be like, without its secrets.
import fs from "node:fs";
import path from "node:path";
import { pathToFileURL } from "node:url";
import { InvalidInput } from "../errors.ts";

const names = ["stillwake.config.ts", "stillwake.config.mts", "stillwake.config.js", "stillwake.config.mjs"];

/** An empty object when there is none and none was asked for. */
export async function loadConfigFile(given: string | undefined): Promise<Record<string, unknown>> {
  const file = given ?? names.find((name) => fs.existsSync(name));
  if (file === undefined) return {};
  const full = path.resolve(file);
  if (!fs.existsSync(full)) {
    throw new InvalidInput(`There is no ${full}`, { field: "config", remedy: "Check --config" });
  }
  let loaded: { default?: unknown };
  try {
    loaded = await import(pathToFileURL(full).href);
  } catch (error) {
    if ((error as { code?: string }).code !== "ERR_UNKNOWN_FILE_EXTENSION") throw broken(full, error);
    throw new InvalidInput(`This Node (${process.version}) cannot read TypeScript: ${full}`, {
      cause: error,
      field: "config",
      remedy: 'Use Node 22.18 or later, start with NODE_OPTIONS="--import tsx", or write stillwake.config.mjs',
    });
  }
  if (typeof loaded.default !== "object" || loaded.default === null) {
    throw new InvalidInput(`${full} has no default export`, {
      field: "config",
      remedy: "export default defineConfig({ … })",
    });
  }
  return fromHere(loaded.default as Record<string, unknown>, path.dirname(full));
}

/** The stack of what the file throws names it; that of what cannot be read does not. */
function broken(file: string, error: unknown): unknown {
  if (!(error instanceof SyntaxError)) return error;
  return new InvalidInput(`${file} cannot be read: ${error.message}`, {
    cause: error,
    field: "config",
    remedy: `node --check ${file} says where`,
  });
}

/** Paths in the file are relative to the file. */
function fromHere(config: Record<string, unknown>, dir: string): Record<string, unknown> {
  const { pipelines, scratch, store } = config;
  const here = (one: unknown) => (typeof one === "string" ? path.resolve(dir, one) : one);
  return {
    ...config,
    ...(pipelines !== undefined && { pipelines: Array.isArray(pipelines) ? pipelines.map(here) : here(pipelines) }),
    ...(scratch !== undefined && { scratch: here(scratch) }),
    ...(/^file:(?!\/)/.test(String(store)) && {
      store: pathToFileURL(path.resolve(dir, decodeURIComponent(String(store).slice(5)))).href,
    }),
  };
}
