// Finds and loads the pipelines of a worker: modules, or directories of modules, that export results of implement().
import fs from "node:fs/promises";
import path from "node:path";
import { pathToFileURL } from "node:url";
import { InvalidInput, StillwakeError } from "../../errors.ts";
import { type Implementation, isImplementation } from "../attempt/implement.ts";
import { prepareImport, typescriptRemedy } from "./typescript.ts";

const isModule = /\.(m?js|m?ts)$/;
const isExcluded = /\.d\.m?ts$|\.(test|spec)\.m?[jt]s$/;

/** Of a directory, its modules without those in subdirectories. */
export async function findModules(paths: readonly string[]): Promise<string[]> {
  const found: string[] = [];
  for (const name of paths) {
    const full = path.resolve(name);
    const stat = await fs.stat(full).catch(() => undefined);
    if (!stat) {
      throw new InvalidInput(`Pipelines "${name}" do not exist at ${full}`, {
        field: "pipelines",
        remedy: "Pass a module or a directory of modules that export results of implement(…)",
      });
    }
    if (!stat.isDirectory()) {
      found.push(full);
      continue;
    }
    const names = (await fs.readdir(full)).filter((name) => isModule.test(name) && !isExcluded.test(name)).sort();
    if (names.length === 0) {
      throw new InvalidInput(`No pipeline is exported by ${full}: the directory contains no module`, {
        field: "pipelines",
        remedy:
          "Export the result of implement(contract, async (job, input) => { … }); subdirectories are not searched",
      });
    }
    // Skip a source file whose build is in the same directory: both export the same pipelines.
    const built = new Set(names.filter((name) => /\.m?js$/.test(name)).map((name) => name.replace(/js$/, "")));
    found.push(
      ...names
        .filter((name) => !/ts$/.test(name) || !built.has(name.replace(/ts$/, "")))
        .map((name) => path.join(full, name)),
    );
  }
  return found;
}

/** `onEmpty` is called for modules that export no pipeline: an export may have been forgotten. */
export async function loadPipelines(
  files: readonly string[],
  onEmpty: (file: string) => void = () => {},
): Promise<Implementation[]> {
  const found = new Map<string, { implementation: Implementation; file: string }>();
  for (const file of files) {
    const values = Object.values(await load(file)).filter(isImplementation);
    if (values.length === 0) onEmpty(file);
    for (const value of values) {
      const { name } = value.pipeline;
      const before = found.get(name);
      if (before && before.implementation !== value) {
        throw new InvalidInput(`Pipeline "${name}" is implemented twice: in ${before.file} and in ${file}`, {
          field: "pipelines",
          remedy: "Rename one of them, or remove it",
        });
      }
      found.set(name, { implementation: value, file });
    }
  }
  if (found.size === 0) {
    throw new InvalidInput(`No pipeline is exported by ${files.join(", ")}`, {
      field: "pipelines",
      remedy: "Export the result of implement(contract, async (job, input) => { … })",
    });
  }
  return [...found.values()].map(({ implementation }) => implementation);
}

export function formatEmptyModule(file: string): string {
  return `${file} exports no pipeline: export the result of implement(…), or move it to another directory`;
}

async function load(file: string): Promise<Record<string, unknown>> {
  try {
    await prepareImport(file);
    return await import(pathToFileURL(file).href);
  } catch (error) {
    if ((error as { code?: string }).code === "ERR_UNKNOWN_FILE_EXTENSION") {
      throw new InvalidInput(`This Node (${process.version}) cannot load TypeScript: ${file}`, {
        cause: error,
        field: "pipelines",
        remedy: typescriptRemedy,
      });
    }
    if (error instanceof StillwakeError) throw error;
    const frames = String((error as Error)?.stack)
      .split("\n")
      .filter((line) => /^ +at (?!.*(node:|\/node_modules\/(tsx|esbuild)\/))/.test(line));
    throw new StillwakeError("PIPELINES_BROKEN", [`${file} cannot be loaded: ${error}`, ...frames].join("\n"), {
      cause: error,
    });
  }
}
