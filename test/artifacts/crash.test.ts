// Artifacts when the process is killed at any point or the disk is full, and cleanup. Real processes are killed with
// SIGKILL before each disk operation, and in the middle of each write; the fixture counts the operations.
import { execFileSync, spawn } from "node:child_process";
import { createHash } from "node:crypto";
import { once } from "node:events";
import fs from "node:fs";
import path from "node:path";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { removeTree } from "../../src/artifacts/disk.ts";
import { openStore } from "../../src/artifacts/open-store.ts";
import { newId } from "../../src/ids.ts";
import { waitFor } from "../../src/testing/index.ts";
import { unpack } from "../../src/worker/archive/unpack.ts";
import { produceArtifact } from "../../src/worker/attempt/produce-artifact.ts";
import { openScratch, scratchName, sweepScratch } from "../../src/worker/keeper/scratch.ts";
import { artifactKey, storeArtifact } from "../../src/worker/keeper/store-artifact.ts";
import { temporaryDirectory } from "../support/cleanup.ts";
import { startS3 } from "../support/fakes/s3-server.ts";
import { recordFigure } from "../support/figures.ts";
import { buildPackage, ROOT } from "../support/processes/build.ts";
import { otherUserUnavailable } from "../support/processes/other-users.ts";

const home = temporaryDirectory("crash");
let numbers = 0;
const fresh = (name = "dir") => path.join(home, `${name}-${++numbers}`);
const never = new AbortController().signal;
const SIZE = 300_000;

beforeAll(() => buildPackage());
afterAll(() => removeTree(home));

interface Run {
  signal: string | null;
  setUp: number;
  done: [what: string, path: string][];
  sha256?: string;
  code?: string;
  message?: string;
  dir: string;
}

async function make(options: Record<string, unknown>, wrapper: string[] = []): Promise<Run> {
  const fixture = path.join(ROOT, "test/fixtures/artifact-maker.mjs");
  const words = [
    ...wrapper,
    process.execPath,
    fixture,
    JSON.stringify({ name: "r.bin", size: SIZE, epoch: 1, ...options }),
  ];
  const child = spawn(words[0]!, words.slice(1), { stdio: ["ignore", "pipe", "inherit"] });
  let output = "";
  child.stdout.on("data", (data) => (output += data));
  const [, signal] = await once(child, "close");
  return { signal, ...(output && JSON.parse(output)) };
}

function filesIn(dir: string): string[] {
  if (!fs.existsSync(dir)) return [];
  const entries = fs.readdirSync(dir, { recursive: true, withFileTypes: true });
  return entries.filter((entry) => entry.isFile()).map((entry) => path.join(entry.parentPath, entry.name));
}

/** All visible artifacts: final names in scratch directories, and keys of the store. */
function visible(scratchRoot: string, storeRoot: string): string[] {
  return [
    ...filesIn(path.join(scratchRoot, "jobs")).filter((file) => file.includes("/artifacts/")),
    ...filesIn(storeRoot).filter((file) => !file.includes("/.incoming/")),
  ];
}

const hashOf = (file: string) => createHash("sha256").update(fs.readFileSync(file)).digest("hex");

describe("a process that is killed while it produces and stores an artifact", () => {
  /** One process per operation. Returns the visible artifacts after each kill. */
  async function killEverywhere(act: "store" | "naive") {
    const places = () => ({ scratchRoot: fresh("root"), storeRoot: fresh("store") });
    const run = ({ scratchRoot, storeRoot }: ReturnType<typeof places>, killAt?: number) =>
      make({ act, scratchRoot, storeUrl: `file://${storeRoot}`, job: newId(), killAt });
    const whole = await run(places());
    expect(whole).toMatchObject({ signal: null, sha256: expect.any(String) });
    const points = Array.from({ length: whole.done.length - whole.setUp }, (_, index) => whole.setUp + 1 + index);
    const seen = { deaths: 0, half: 0, inScratch: 0, inStore: 0, left: 0 };
    const next = async () => {
      for (let point = points.shift(); point; point = points.shift()) {
        const { scratchRoot, storeRoot } = places();
        const { signal } = await run({ scratchRoot, storeRoot }, point);
        if (signal === "SIGKILL") seen.deaths++;
        const found = visible(scratchRoot, storeRoot);
        seen.half += found.filter((file) => hashOf(file) !== whole.sha256).length;
        if (found.some((file) => file.startsWith(scratchRoot))) seen.inScratch++;
        if (found.some((file) => file.startsWith(storeRoot))) seen.inStore++;
        expect(await sweepScratch(scratchRoot)).toHaveLength(1);
        await openStore(`file://${storeRoot}`).sweep(0);
        seen.left += filesIn(scratchRoot).length + filesIn(path.join(storeRoot, ".incoming")).length;
      }
    };
    await Promise.all([next(), next()]);
    return { ...seen, points: whole.done.length - whole.setUp };
  }

  it("leaves no incomplete file under a final name or key, and nothing after a sweep", {
    timeout: 120_000,
  }, async () => {
    const seen = await killEverywhere("store");
    recordFigure("half files visible", seen.half, "", `killed at ${seen.points} points`);
    recordFigure("leftovers after a sweep", seen.left);
    expect(seen).toMatchObject({ half: 0, left: 0, deaths: seen.points });
    // Kills before and after each of the two operations that make a complete file visible.
    expect(seen.points).toBeGreaterThan(20);
    expect(seen.inScratch).toBeGreaterThan(0);
    expect(seen.inScratch).toBeLessThan(seen.points);
    expect(seen.inStore).toBeGreaterThan(0);
    expect(seen.inStore).toBeLessThan(seen.inScratch);
  });

  it("is detected by this test if it writes in place", { timeout: 60_000 }, async () => {
    expect((await killEverywhere("naive")).half).toBeGreaterThan(2);
  });

  it("syncs the content before the name, and the name before it continues", async () => {
    const scratchRoot = fresh("root");
    const storeRoot = fresh("store");
    const job = newId();
    const { done, dir, sha256 } = await make({ act: "store", scratchRoot, storeUrl: `file://${storeRoot}`, job });
    const acts = done.map(
      ([what, where]) =>
        `${what} ${where
          .replace(dir, "SCRATCH")
          .replace(storeRoot, "STORE")
          .replaceAll(/[0-9a-f-]{36}/g, "ID")}`,
    );
    const week = artifactKey(job, 1, sha256!).split("/")[0];
    expect(acts).toEqual(
      inOrder(
        "writeFile SCRATCH/artifacts.part/ID/r.bin",
        "sync SCRATCH/artifacts.part/ID/r.bin",
        "rename SCRATCH/artifacts.part/ID/r.bin",
        "sync SCRATCH/artifacts",
        "writeFile STORE/.incoming/ID",
        "sync STORE/.incoming/ID",
        `mkdir STORE/${week}/ID/1`,
        `sync STORE/${week}/ID`,
        "link STORE/.incoming/ID",
        `sync STORE/${week}/ID/1`,
      ),
    );
    expect(acts.lastIndexOf("writeFile STORE/.incoming/ID")).toBeLessThan(acts.indexOf("sync STORE/.incoming/ID"));
  });

  it("leaves nothing incomplete in a bucket, wherever the request is interrupted", async () => {
    const server = await startS3();
    const { credentials } = server;
    const storeUrl = `s3://${server.bucket}/x?endpoint=${server.endpoint}`;
    // More than the socket buffers, so that the first two kills happen during the request.
    const size = 24_000_000;
    const kept: number[] = [];
    for (const point of [1, size / 2, size - 1]) {
      const job = newId();
      const words = {
        act: "store",
        name: "r.bin",
        size,
        epoch: 1,
        scratchRoot: fresh("root"),
        storeUrl,
        credentials,
        job,
      };
      const fixture = path.join(ROOT, "test/fixtures/artifact-maker.mjs");
      const child = spawn(process.execPath, [fixture, JSON.stringify(words)], { stdio: "ignore" });
      server.onBytes = (soFar) => soFar >= point && child.kill("SIGKILL");
      expect(await once(child, "close")).toEqual([null, "SIGKILL"]);
      await waitFor(() => server.log.length > kept.length, { what: "the server to notice" });
      const [object] = [...server.objects].filter(([key]) => key.includes(job)).map(([, { body }]) => body);
      kept.push(object?.length ?? 0);
    }
    expect(kept.slice(0, 2)).toEqual([0, 0]);
    expect([0, size]).toContain(kept[2]);
    await server.close();
  });

  function inOrder(...wanted: string[]) {
    return expect.toSatisfy(
      (acts: string[]) => {
        let from = 0;
        return wanted.every((want) => {
          const at = acts.indexOf(want, from);
          from = at + 1;
          return at >= 0;
        });
      },
      `holds in this order: ${wanted.join(", ")}`,
    );
  }
});

describe("a full disk", () => {
  const FULL = {
    code: "DISK_FULL",
    retryable: true,
    message: expect.stringMatching(/^The disk is full: no room for .*\. Use a machine/),
  };

  it("is an error with a remedy, and leaves nothing incomplete: produce, store and unpack", async (context) => {
    const disk = fresh("tmpfs");
    fs.mkdirSync(disk);
    try {
      execFileSync("mount", ["-t", "tmpfs", "-o", "size=256k", "tmpfs", disk], { stdio: "pipe" });
    } catch {
      return context.skip("mount is not permitted here; the next test limits the size of files instead");
    }
    try {
      const small = path.join(disk, "scratch");
      fs.mkdirSync(small);
      await expect(produceArtifact(small, "r.bin", () => Buffer.alloc(400_000, 1), never)).rejects.toMatchObject(FULL);
      const byItself = produceArtifact(
        small,
        "r.bin",
        (file) => fs.writeFileSync(file, Buffer.alloc(400_000, 1)),
        never,
      );
      await expect(byItself).rejects.toMatchObject(FULL);
      expect(filesIn(small)).toEqual([]);

      const scratch = fresh("scratch");
      fs.mkdirSync(scratch);
      const { path: file, ...expected } = await produceArtifact(
        scratch,
        "r.bin",
        () => Buffer.alloc(400_000, 1),
        never,
      );
      const store = openStore(`file://${disk}/store`);
      const options = { store, job: newId(), epoch: 1, name: "r.bin", path: file, scratch, expected };
      await expect(storeArtifact(options)).rejects.toMatchObject(FULL);
      expect(filesIn(`${disk}/store`)).toEqual([]);

      const archive = fresh("archive.tar");
      execFileSync("tar", ["-cf", archive, "-C", path.dirname(file), "r.bin"]);
      await expect(unpack(archive, path.join(disk, "unpacked"))).rejects.toMatchObject(FULL);
      expect(fs.existsSync(path.join(disk, "unpacked"))).toBe(false);

      expect(await produceArtifact(small, "r.bin", () => "fits", never)).toMatchObject({ size: 4 });
    } finally {
      execFileSync("umount", [disk]);
    }
  });

  it("is the same error when the system limits the size of a file", async (context) => {
    if (process.platform !== "linux") return context.skip("prlimit is a tool of Linux");
    const scratchRoot = fresh("root");
    const run = await make({ act: "store", scratchRoot, storeUrl: `file://${fresh("store")}`, job: newId() }, [
      "prlimit",
      "--fsize=65536",
    ]);
    expect(run).toMatchObject({ signal: null, code: FULL.code, message: FULL.message });
    expect(filesIn(path.join(scratchRoot, "jobs"))).toEqual([]);
  });
});

describe("the scratch directory", () => {
  it("is separate per attempt and private", async () => {
    const root = fresh("root");
    const job = newId();
    const scratch = await openScratch(root, job, 3n);
    expect(scratch.dir).toBe(path.join(root, "jobs", scratchName(job, 3)));
    for (const dir of [root, path.join(root, "jobs"), scratch.dir])
      expect(fs.statSync(dir).mode & 0o777, dir).toBe(0o700);
    await expect(openScratch(root, job, 3)).rejects.toMatchObject({ code: "SCRATCH_IN_USE" });
    await expect(openScratch(root, job, "../3")).rejects.toMatchObject({ code: "INVALID_INPUT" });
    await expect(openScratch(root, "../x", 3)).rejects.toMatchObject({ code: "INVALID_INPUT" });
    await scratch.remove();
    expect(filesIn(root)).toEqual([]);
  });

  it("is owned by the runner's user, who can traverse the parent directories but not list them", async (context) => {
    if (process.getuid?.() !== 0) return context.skip("only root can give a directory away");
    const root = fresh("root");
    fs.chmodSync(home, 0o711);
    const { dir } = await openScratch(root, newId(), 1, { uid: 65534, gid: 65534 });
    const asNobody = (script: string) =>
      execFileSync(process.execPath, ["-e", script, dir, root], { uid: 65534, gid: 65534, encoding: "utf8" });
    asNobody(`require("fs").writeFileSync(process.argv[1] + "/a", "x")`);
    expect(fs.readFileSync(path.join(dir, "a"), "utf8")).toBe("x");
    expect(
      asNobody(`try { require("fs").readdirSync(process.argv[2] + "/jobs") } catch (e) { console.log(e.code) }`),
    ).toBe("EACCES\n");
  });

  it("is removed with everything in it, but not with the targets of its links", async () => {
    const root = fresh("root");
    const precious = fresh("precious");
    fs.mkdirSync(precious);
    fs.writeFileSync(path.join(precious, "file"), "precious");
    const scratch = await openScratch(root, newId(), 1);
    const build = `
      const fs = require("fs"); process.chdir(process.argv[1]);
      fs.symlinkSync(process.argv[2], "link"); fs.symlinkSync(process.argv[2] + "/file", "file");
      fs.mkdirSync("closed/inner", { recursive: true }); fs.writeFileSync("closed/inner/x", "x");
      fs.writeFileSync(Buffer.from([0xff, 0xfe, 0x41]), "a name that is not UTF-8");
      fs.chmodSync("closed/inner", 0); fs.chmodSync("closed", 0o500);
      for (let depth = 0; depth < 2000; depth++) { fs.mkdirSync("d".repeat(100)); process.chdir("d".repeat(100)); }
      fs.writeFileSync("deepest", "x");`;
    execFileSync(process.execPath, ["-e", build, scratch.dir, precious]);
    await scratch.remove();
    expect(fs.existsSync(scratch.dir)).toBe(false);
    expect(fs.readFileSync(path.join(precious, "file"), "utf8")).toBe("precious");
  });

  it("is removed without root privileges too, although directories have no permissions", (context) => {
    if (otherUserUnavailable) return context.skip(otherUserUnavailable);
    const root = fresh("root");
    const script = `
      import fs from "node:fs"; import { removeTree } from ${JSON.stringify(path.join(ROOT, "dist/artifacts/disk.js"))};
      const top = process.argv[1]; fs.mkdirSync(top + "/a/b/c", { recursive: true }); fs.writeFileSync(top + "/a/b/c/x", "x");
      for (const dir of ["/a/b/c", "/a/b", "/a"]) fs.chmodSync(top + dir, 0);
      console.log(await removeTree(top), fs.existsSync(top));`;
    fs.mkdirSync(root, { mode: 0o777 });
    fs.chmodSync(root, 0o777);
    fs.chmodSync(home, 0o711);
    const output = execFileSync(process.execPath, ["--input-type=module", "-e", script, `${root}/top`], {
      uid: 65534,
      gid: 65534,
      encoding: "utf8",
    });
    expect(output).toBe("1 false\n");
  });

  it("is swept when its process is gone, and not before", async (context) => {
    if (process.platform !== "linux") return context.skip("only Linux reports when a process started");
    const root = fresh("root");
    const mine = newId();
    const scratch = await openScratch(root, mine, 1);
    const owner = JSON.parse(fs.readFileSync(path.join(root, "owners", `${mine}-1.json`), "utf8"));
    const gone = spawn(process.execPath, ["-e", ""]);
    await once(gone, "close");
    const parent = {
      pid: process.ppid,
      started: fs.readFileSync(`/proc/${process.ppid}/stat`, "utf8").split(") ")[1]!.split(" ")[19],
    };
    const plant = (owned: object, ageMs = 0) => {
      const name = `${newId()}-1`;
      const record = path.join(root, "owners", `${name}.json`);
      fs.mkdirSync(path.join(root, "jobs", name));
      fs.writeFileSync(record, JSON.stringify({ ...owner, ...owned }));
      fs.utimesSync(record, new Date(), new Date(Date.now() - ageMs));
      return name;
    };
    const day = 25 * 3600_000;
    const left = [
      plant({ pid: gone.pid, started: "1" }),
      plant({ ...parent, started: "1" }),
      plant({ ...parent, boot: "another" }),
      plant({ ...parent, namespace: "another" }, day),
      plant({ ...parent, host: "another" }, day),
      plant({ ...owner }),
    ];
    fs.mkdirSync(path.join(root, "jobs", `${newId()}-1`));
    const named = plant({ pid: gone.pid, started: "1" });
    const kept = [
      plant(parent, day),
      plant({ pid: gone.pid, namespace: "another" }),
      plant({ pid: gone.pid, host: "another", boot: "another" }),
      named,
      `${mine}-1`,
      "not ours",
    ];
    fs.mkdirSync(path.join(root, "jobs/not ours"));
    const removed = await sweepScratch(root, new Set([named]));
    expect(removed).toEqual(expect.arrayContaining(left));
    expect(removed).toHaveLength(left.length + 1);
    expect(fs.readdirSync(path.join(root, "jobs")).sort()).toEqual(kept.sort());
    expect(fs.readdirSync(path.join(root, "owners"))).toHaveLength(kept.length - 1);
    await scratch.remove();
  });
});
