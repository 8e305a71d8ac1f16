// Restricts cdxgen with Node's permission model: it may read the attempt's scratch directory and its own packages, write the
// scratch directory, and start no programs. Files that it may not read look missing to it.
import fs from "node:fs/promises";
import path from "node:path";

/** Arguments for Node. `program` and all that it imports must be below one node_modules folder. */
export async function permissionFlags(scratch: string, program: string): Promise<string[]> {
  const flag = process.allowedNodeEnvironmentFlags.has("--permission") ? "--permission" : "--experimental-permission";
  const writable = await withRealPath(scratch);
  const code = await withRealPath(packagesDirectory(program));
  return [
    flag,
    "--no-warnings",
    ...[...writable, ...code].map((folder) => `--allow-fs-read=${folder}${path.sep}`),
    ...writable.map((folder) => `--allow-fs-write=${folder}${path.sep}`),
    "--import",
    `data:text/javascript,${encodeURIComponent(MISSING_FILE_HOOK)}`,
  ];
}

async function withRealPath(folder: string): Promise<string[]> {
  return [...new Set([folder, await fs.realpath(folder)])];
}

function packagesDirectory(program: string): string {
  const parts = program.split(path.sep);
  const at = parts.indexOf("node_modules");
  return at < 0 ? path.dirname(program) : parts.slice(0, at + 1).join(path.sep);
}

/**
 * Loaded into cdxgen's process before it starts. It turns a denied read, which would crash cdxgen, into ENOENT, which it
 * handles. Denied writes stay as they are.
 */
const MISSING_FILE_HOOK = `
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
  return function (...args) {
    try {
      return real.apply(this, args);
    } catch (error) {
      return otherwise(absent(error), args);
    }
  };
}

function rethrow(error) {
  throw error;
}

function withCallback(real) {
  return function (...args) {
    const callback = args.at(-1);
    if (!isFunction(callback)) return direct(real, rethrow).apply(this, args);
    const wrapped = (error, ...rest) => callback(error ? absent(error) : error, ...rest);
    return direct(real, (error) => void process.nextTick(callback, error)).apply(this, [...args.slice(0, -1), wrapped]);
  };
}

function promised(real) {
  return async function (...args) {
    try {
      return await real.apply(this, args);
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
