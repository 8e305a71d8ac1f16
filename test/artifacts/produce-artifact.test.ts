// Artifacts from the producer to the store: names, results of producers, and what the keeper verifies. crash.test.ts
// covers kills and full disks.
import { execFileSync } from "node:child_process";
import { createHash } from "node:crypto";
import fs from "node:fs";
import path from "node:path";
import { Readable } from "node:stream";
import { describe, expect, it } from "vitest";
import { checkArtifactName, resolveInside } from "../../src/artifacts/names.ts";
import { openStore } from "../../src/artifacts/open-store.ts";
import { type ArtifactProducer, produceArtifact } from "../../src/worker/attempt/produce-artifact.ts";
import { artifactExists, artifactWeek, storeArtifact } from "../../src/worker/keeper/store-artifact.ts";
import { temporaryDirectory } from "../support/cleanup.ts";

const home = temporaryDirectory("artifacts");
let numbers = 0;
const fresh = (name = "dir") => path.join(home, `${name}-${++numbers}`);
const never = new AbortController().signal;
const sha256 = (data: string | Buffer) => createHash("sha256").update(data).digest("hex");

function freshScratch(): string {
  const dir = fresh("scratch");
  fs.mkdirSync(dir);
  return dir;
}

/** All files in a directory, as relative paths. */
function filesIn(dir: string): string[] {
  if (!fs.existsSync(dir)) return [];
  const entries = fs.readdirSync(dir, { recursive: true, withFileTypes: true });
  return entries
    .filter((entry) => !entry.isDirectory())
    .map((entry) => path.relative(dir, path.join(entry.parentPath, entry.name)));
}

describe("the name of an artifact", () => {
  it.each([
    ["report.json"],
    ["reports/2026/sbom.cdx.json"],
    [".hidden"],
    ["Ünïcode 報告.pdf"],
    ["a b/c-d_e (1).txt"],
    ["x".repeat(255)],
  ])("may be %s", (name) => expect(checkArtifactName(name)).toBe(name));

  it("is stored in Unicode form NFC", () => expect(checkArtifactName("u\u0308.txt")).toBe("ü.txt"));

  it.each([
    ["", "is empty"],
    [42, "is not a string"],
    ["x".repeat(256), "has 256 bytes, the limit is 255"],
    ["ü".repeat(128), "has 256 bytes"],
    ["/etc/passwd", "starts with a slash"],
    ["a//b", "has an empty part"],
    ["a/", "has an empty part"],
    ["./a", "has the part ."],
    ["a/../../b", "has the part .."],
    ["a\0b", "U+0000"],
    ["a\\b", "U+005C"],
    ["a\nb", "U+000A"],
    ["gpj\u202Eexe.txt", "U+202E"],
    ["a\u200Bb", "U+200B"],
    ["a\uD800", "U+D800"],
    ["C:x", "U+003A"],
    ["a./b", "ends in a dot or a space"],
    ["a ", "ends in a dot or a space"],
    ["logs/NUL", "Windows reserves"],
    ["com1.txt", "Windows reserves"],
  ])("is not %j", (name, problem) => {
    expect(() => checkArtifactName(name)).toThrow(
      expect.objectContaining({
        code: "INVALID_INPUT",
        field: "name",
        message: expect.stringContaining(problem),
        remedy: expect.any(String),
      }),
    );
  });

  it("does not leave its directory through a link, not even a dangling one", async () => {
    const root = freshScratch();
    fs.mkdirSync(path.join(root, "real"));
    fs.symlinkSync("/etc", path.join(root, "out"));
    fs.symlinkSync("/nowhere/at/all", path.join(root, "dangling"));
    expect(await resolveInside(root, "real/a/b.txt")).toBe(path.join(root, "real/a/b.txt"));
    await expect(resolveInside(root, "out/passwd")).rejects.toMatchObject({ code: "OUTSIDE_SCRATCH" });
    await expect(resolveInside(root, "dangling")).rejects.toMatchObject({ code: "OUTSIDE_SCRATCH" });
  });
});

describe("produce", () => {
  const long = Buffer.alloc(1_000_000, "0123456789abcdef");
  async function* small() {
    // One buffer for all pieces, as many readers use.
    const buffer = Buffer.alloc(1000);
    for (let from = 0; from < long.length; from += 1000) {
      long.copy(buffer, 0, from);
      yield buffer;
    }
  }
  it.each<[what: string, producer: ArtifactProducer, content: string | Buffer]>([
    ["text", () => "täxt", "täxt"],
    ["bytes", async () => long, long],
    ["a Node stream", () => Readable.from([long.subarray(0, 10), long.subarray(10)]), long],
    ["a web stream", () => new Response(long).body as AsyncIterable<Uint8Array>, long],
    ["an async iterable of small pieces in one buffer", () => small(), long],
    ["an iterable of texts", () => ["a", "b", "c"], "abc"],
    ["a file at its path", (file) => fs.writeFileSync(file, long), long],
    ["content although it wrote to the path", (file) => fs.writeFileSync(file, "old") ?? "new", "new"],
  ])("takes %s", async (_, producer, content) => {
    const scratch = freshScratch();
    const made = await produceArtifact(scratch, "deep/er/r.bin", producer, never);
    expect(made).toEqual({
      path: path.join(scratch, "artifacts/deep/er/r.bin"),
      size: Buffer.byteLength(content),
      sha256: sha256(content),
    });
    expect(fs.readFileSync(made.path).equals(Buffer.from(content))).toBe(true);
    expect(filesIn(scratch)).toEqual(["artifacts/deep/er/r.bin"]);
  });

  it("moves a file of the scratch directory, and copies it when it has a second hard link", async () => {
    const scratch = freshScratch();
    fs.writeFileSync(path.join(scratch, "own.mp4"), "film");
    fs.writeFileSync(path.join(scratch, "first"), "linked");
    fs.linkSync(path.join(scratch, "first"), path.join(scratch, "second"));
    expect(await produceArtifact(scratch, "a.mp4", () => ({ file: "own.mp4" }), never)).toMatchObject({
      size: 4,
      sha256: sha256("film"),
    });
    expect(fs.existsSync(path.join(scratch, "own.mp4"))).toBe(false);
    const { path: copied } = await produceArtifact(
      scratch,
      "b.mp4",
      () => ({ file: path.join(scratch, "second") }),
      never,
    );
    expect(fs.statSync(copied).nlink).toBe(1);
  });

  it("gives the producer a path with the extension of the name", async () => {
    let given = "";
    await produceArtifact(freshScratch(), "x/clip.mp4", (file) => (given = file), never);
    expect(path.basename(given)).toBe("clip.mp4");
  });

  it("rejects a file outside, a link, a directory and a pipe", async () => {
    const scratch = freshScratch();
    const outside = fresh("outside");
    fs.writeFileSync(outside, "secret");
    fs.symlinkSync(outside, path.join(scratch, "link"));
    fs.symlinkSync(home, path.join(scratch, "way"));
    execFileSync("mkfifo", [path.join(scratch, "pipe")]);
    for (const file of [
      outside,
      "link",
      `way/${path.basename(outside)}`,
      ".",
      "pipe",
      `../${path.basename(outside)}`,
    ]) {
      const rejected = produceArtifact(scratch, "r.txt", () => ({ file }), never);
      await expect(rejected, file).rejects.toMatchObject({ code: "OUTSIDE_SCRATCH" });
    }
    expect(fs.existsSync(path.join(scratch, "artifacts"))).toBe(false);
    expect(fs.readFileSync(outside, "utf8")).toBe("secret");
  });

  it.each<[what: string, producer: ArtifactProducer, message: RegExp]>([
    ["no bytes", () => "", /^Artifact report\.json is empty\./],
    ["no pieces", () => [], /^Artifact report\.json is empty\./],
    ["an empty file", (file) => fs.writeFileSync(file, ""), /^Artifact report\.json is empty\./],
    ["nothing at all", () => {}, /^Artifact report\.json was not written\./],
  ])("treats %s as a retryable failure", async (_, producer, message) => {
    const scratch = freshScratch();
    const failed = produceArtifact(scratch, "report.json", producer, never);
    await expect(failed).rejects.toMatchObject({
      code: "EMPTY_ARTIFACT",
      retryable: true,
      message: expect.stringMatching(message),
    });
    expect(filesIn(scratch)).toEqual([]);
  });

  it("rejects unsupported results with the supported ones", async () => {
    const wrong = produceArtifact(freshScratch(), "r.json", () => 42 as unknown as string, never);
    await expect(wrong).rejects.toThrow(/returned a value of type number\. Return text/);
    const mixed = produceArtifact(freshScratch(), "r.json", () => [1, 2] as unknown as string[], never);
    await expect(mixed).rejects.toMatchObject({ code: "INVALID_INPUT" });
  });

  it("stops with the signal, leaves nothing, and keeps the file of an earlier call", async () => {
    const scratch = freshScratch();
    await produceArtifact(scratch, "r.txt", () => "first", never);
    const stuck: Record<string, (control: AbortController) => ArtifactProducer> = {
      "a producer that never returns": (control) => () => {
        queueMicrotask(() => control.abort());
        return new Promise<never>(() => {});
      },
      "a stream that stops in the middle": (control) =>
        async function* () {
          yield "half";
          queueMicrotask(() => control.abort());
          await new Promise(() => {});
        },
      "one that still finishes": (control) => () => control.abort() ?? "second",
    };
    for (const [what, make] of Object.entries(stuck)) {
      const control = new AbortController();
      await expect(produceArtifact(scratch, "r.txt", make(control), control.signal), what).rejects.toMatchObject({
        name: "AbortError",
      });
      expect(filesIn(scratch), what).toEqual(["artifacts/r.txt"]);
    }
    expect(fs.readFileSync(path.join(scratch, "artifacts/r.txt"), "utf8")).toBe("first");
  });

  it("rejects a name that is used as a file and as a directory", async () => {
    const scratch = freshScratch();
    await produceArtifact(scratch, "a", () => "x", never);
    await produceArtifact(scratch, "b/c", () => "x", never);
    for (const name of ["a/b", "b"]) {
      await expect(produceArtifact(scratch, name, () => "x", never)).rejects.toMatchObject({ code: "INVALID_INPUT" });
    }
  });
});

describe("storeArtifact", () => {
  const job = "019a85c3-2b00-7000-8000-000000000001";
  async function handOver(change: (file: string, scratch: string) => void = () => {}) {
    const scratch = freshScratch();
    const { path: file, ...expected } = await produceArtifact(scratch, "r.json", () => '{"a":1}', never);
    change(file, scratch);
    const root = fresh("store");
    const store = openStore(`file://${root}`);
    return { root, store, options: { store, job, epoch: 7n, name: "r.json", path: file, scratch, expected } };
  }

  it("returns a key of the week of the job, the job, the epoch and the hash", async () => {
    const { store, options } = await handOver();
    const stored = await storeArtifact(options);
    const hash = sha256('{"a":1}');
    const key = `${artifactWeek(job)}/${job}/7/${hash}`;
    expect(stored).toEqual({ name: "r.json", size: 7, sha256: hash, key, contentType: "application/json" });
    expect(await artifactExists(store, stored)).toBe(true);
    expect(await artifactExists(store, { ...stored, size: 8 })).toBe(false);
    expect(await artifactExists(store, { ...stored, sha256: sha256("other") })).toBe(false);
    expect(await artifactExists(store, { ...stored, key: `${key}0` })).toBe(false);
  });

  it.each([
    ["2026-11-16T00:00:00.000Z", "2026-11-16"],
    ["2026-11-22T23:59:59.999Z", "2026-11-16"],
    ["2026-11-15T23:59:59.999Z", "2026-11-09"],
    ["2027-01-01T12:00:00.000Z", "2026-12-28"],
  ])("counts a job of %s to the week of %s", (time, monday) => {
    const hex = Date.parse(time).toString(16).padStart(12, "0");
    expect(artifactWeek(`${hex.slice(0, 8)}-${hex.slice(8)}-7abc-8def-0123456789ab`)).toBe(monday);
  });

  it.each<[what: string, change: (file: string, scratch: string) => void, code: string]>([
    ["a file that has grown", (file) => fs.appendFileSync(file, "x"), "ARTIFACT_CHANGED"],
    ["a file of the same size with other content", (file) => fs.writeFileSync(file, '{"a":2}'), "ARTIFACT_CHANGED"],
    ["a file that is gone", (file) => fs.rmSync(file), "ARTIFACT_CHANGED"],
    [
      "a link to the same content",
      (file, scratch) => swap(file, path.join(scratch, "elsewhere"), fs.symlinkSync),
      "OUTSIDE_SCRATCH",
    ],
    ["a hard link to a file elsewhere", (file) => swap(file, fresh("elsewhere"), fs.linkSync), "OUTSIDE_SCRATCH"],
    [
      "a directory that is a link to elsewhere",
      (file) => swap(path.dirname(file), fresh("elsewhere"), fs.symlinkSync),
      "OUTSIDE_SCRATCH",
    ],
    [
      "a pipe, without waiting for its writer",
      (file) => fs.rmSync(file) ?? execFileSync("mkfifo", [file]),
      "OUTSIDE_SCRATCH",
    ],
    ["a directory", (file) => fs.rmSync(file) ?? fs.mkdirSync(file), "OUTSIDE_SCRATCH"],
  ])("rejects %s and stores nothing", async (_, change, code) => {
    const { root, options } = await handOver(change);
    await expect(storeArtifact(options)).rejects.toMatchObject({ code });
    expect(filesIn(root)).toEqual([]);
  });

  it("rejects a path outside and an invalid hash", async () => {
    const { options } = await handOver();
    const outside = fresh("outside");
    fs.writeFileSync(outside, '{"a":1}');
    await expect(storeArtifact({ ...options, path: outside })).rejects.toMatchObject({ code: "OUTSIDE_SCRATCH" });
    const expected = { size: 7, sha256: "../../../etc" };
    await expect(storeArtifact({ ...options, expected })).rejects.toMatchObject({ code: "ARTIFACT_CHANGED" });
  });

  function swap(place: string, elsewhere: string, link: (target: string, place: string) => void): void {
    fs.renameSync(place, elsewhere);
    link(elsewhere, place);
  }
});
