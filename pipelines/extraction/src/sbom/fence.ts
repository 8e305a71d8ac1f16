// What keeps cdxgen in: Node's own permissions. It may read the attempt's scratch directory and the packages it is made of, write the scratch directory, and start
// nothing. It looks for workspaces in the folders above and wherever a manifest points; what it is refused there is simply not there.
import fs from "node:fs/promises";
import path from "node:path";

/** Arguments for Node. `program` is a file in a package: it and all that it imports are below the outermost node_modules on the way to it. */
export async function fence(scratch: string, program: string): Promise<string[]> {
  const flag = process.allowedNodeEnvironmentFlags.has("--permission") ? "--permission" : "--experimental-permission";
  const own = await both(scratch);
  const code = await both(packagesOf(program));
  return [
    flag,
    "--no-warnings",
    ...[...own, ...code].map((place) => `--allow-fs-read=${place}${path.sep}`),
    ...own.map((place) => `--allow-fs-write=${place}${path.sep}`),
    "--import",
    `data:text/javascript,${encodeURIComponent(ABSENT)}`,
  ];
}

/** As it is called and as it is, if there are links on the way. */
async function both(place: string): Promise<string[]> {
  return [...new Set([place, await fs.realpath(place)])];
}

function packagesOf(program: string): string {
  const parts = program.split(path.sep);
  const at = parts.indexOf("node_modules");
  return at < 0 ? path.dirname(program) : parts.slice(0, at + 1).join(path.sep);
}

/**
 * Runs in cdxgen's process before it. A refusal to read is an error that no program is prepared for, and cdxgen ends by it; that a file is absent is one that it
 * meets all the time. Refusals to write stay what they are.
 */
const ABSENT = `
import fs from "node:fs";
import { syncBuiltinESMExports } from "node:module";

function absent(error) {
  if (error?.code !== "ERR_ACCESS_DENIED" || error.permission !== "FileSystemRead") return error;
  const path = error.resource ?? "";
  const message = "ENOENT: no such file or directory, open '" + path + "'";
  return Object.assign(new Error(message), { code: "ENOENT", errno: -2, syscall: "open", path });
}

function isFunction(value) {
  return typeof value === "function";
}

function direct(real, otherwise) {
  return function (...given) {
    try {
      return real.apply(this, given);
    } catch (error) {
      return otherwise(absent(error), given);
    }
  };
}

function rethrow(error) {
  throw error;
}

function withCallback(real) {
  return function (...given) {
    const back = given.at(-1);
    if (!isFunction(back)) return direct(real, rethrow).apply(this, given);
    const wrapped = (error, ...rest) => back(error ? absent(error) : error, ...rest);
    return direct(real, (error) => void process.nextTick(back, error)).apply(this, [...given.slice(0, -1), wrapped]);
  };
}

function promised(real) {
  return async function (...given) {
    try {
      return await real.apply(this, given);
    } catch (error) {
      throw absent(error);
    }
  };
}

const plain = (owner) => Object.keys(owner).filter((name) => /^[a-z]/.test(name) && isFunction(owner[name]));
for (const name of plain(fs)) {
  const real = fs[name];
  if (name === "watch" || name === "watchFile" || /^create/.test(name)) continue;
  if (name === "existsSync") fs[name] = direct(real, () => false);
  else fs[name] = name.endsWith("Sync") ? direct(real, rethrow) : withCallback(real);
  Object.assign(fs[name], real);
  if (isFunction(real.native)) fs[name].native = name.endsWith("Sync") ? direct(real.native, rethrow) : withCallback(real.native);
}
for (const name of plain(fs.promises)) {
  if (name !== "watch") fs.promises[name] = promised(fs.promises[name]);
}
syncBuiltinESMExports();
`;
