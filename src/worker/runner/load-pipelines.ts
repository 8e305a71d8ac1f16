// Finds the pipelines of a worker: files, or directories of files, whose exports are what implement() returned.
import fs from "node:fs/promises";
import path from "node:path";
import { pathToFileURL } from "node:url";
import { InvalidInput, StillwakeError } from "../../errors.ts";
import { type Implementation, isImplementation } from "../attempt/implement.ts";

const isModule = /\.(m?js|m?ts)$/;
const isLeftOut = /\.d\.m?ts$|\.(test|spec)\.m?[jt]s$/;

/** A directory stands for the modules in it, not for those below it. */
export async function findModules(given: readonly string[]): Promise<string[]> {
  const found: string[] = [];
  for (const one of given) {
    const full = path.resolve(one);
    const stat = await fs.stat(full).catch(() => undefined);
    if (!stat) {
      throw new InvalidInput(`Pipelines "${one}" do not exist at ${full}`, {
        field: "pipelines",
        remedy: "Give a module or a directory of modules that export implement(…)",
      });
    }
    if (!stat.isDirectory()) {
      found.push(full);
      continue;
    }
    const names = (await fs.readdir(full)).filter((name) => isModule.test(name) && !isLeftOut.test(name)).sort();
    if (names.length === 0) {
      throw new InvalidInput(`No pipeline is exported by ${full}: there is no module in it`, {
        field: "pipelines",
        remedy:
          "Export what implement(contract, async (job, input) => { … }) returns; directories below are not searched",
      });
    }
    // The build beside its source would be the same pipelines once more.
    const built = new Set(names.filter((name) => /\.m?js$/.test(name)).map((name) => name.replace(/js$/, "")));
    found.push(
      ...names
        .filter((name) => !/ts$/.test(name) || !built.has(name.replace(/ts$/, "")))
        .map((name) => path.join(full, name)),
    );
  }
  return found;
}

/** `onEmpty` is told of modules that export none: somebody may have forgotten an export. */
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
          remedy: "Give one of them another name, or leave it out",
        });
      }
      found.set(name, { implementation: value, file });
    }
  }
  if (found.size === 0) {
    throw new InvalidInput(`No pipeline is exported by ${files.join(", ")}`, {
      field: "pipelines",
      remedy: "Export what implement(contract, async (job, input) => { … }) returns",
    });
  }
  return [...found.values()].map(({ implementation }) => implementation);
}

export function withoutPipeline(file: string): string {
  return `${file} exports no pipeline: export what implement(…) returns, or keep it in another directory`;
}

async function load(file: string): Promise<Record<string, unknown>> {
  try {
    return await import(pathToFileURL(file).href);
  } catch (error) {
    if ((error as { code?: string }).code === "ERR_UNKNOWN_FILE_EXTENSION") {
      throw new InvalidInput(`This Node (${process.version}) cannot read TypeScript: ${file}`, {
        cause: error,
        field: "pipelines",
        remedy: 'Use Node 22.18 or later, start with NODE_OPTIONS="--import tsx", or build to JavaScript first',
      });
    }
    if (error instanceof StillwakeError) throw error;
    const frames = String((error as Error)?.stack)
      .split("\n")
      .filter((line) => /^ +at (?!.*node:internal)/.test(line));
    throw new StillwakeError("PIPELINES_BROKEN", [`${file} cannot be loaded: ${error}`, ...frames].join("\n"), {
      cause: error,
    });
  }
}
