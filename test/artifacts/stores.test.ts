// Artifact stores: one suite for both kinds, and the specifics of a directory. s3-store.test.ts covers the specifics of a bucket.
import fs from "node:fs";
import path from "node:path";
import { buffer } from "node:stream/consumers";
import { afterAll, describe, expect, it } from "vitest";
import { fileStore } from "../../src/artifacts/file-store.ts";
import { type ArtifactStore, openStore } from "../../src/artifacts/open-store.ts";
import { newId } from "../../src/ids.ts";
import { artifactKey } from "../../src/worker/keeper/store-artifact.ts";
import { startS3 } from "../support/fakes/s3-server.ts";
import { put, readText, s3StoreOn, sha256, tempDirectories } from "../support/fakes/stores.ts";
import { recordFigure } from "../support/figures.ts";

const fresh = tempDirectories();
const server = await startS3();
afterAll(() => server.close());

function freshBucket(): ArtifactStore {
  server.objects.clear();
  return s3StoreOn(server);
}

describe.each<[kind: string, open: () => ArtifactStore]>([
  ["a directory", () => openStore(`file://${fresh()}`)],
  ["a bucket", freshBucket],
])("%s", (_, open) => {
  const large = Buffer.alloc(900_000, "0123456789");

  it("returns what was put, with its size and hash", async () => {
    const store = open();
    expect(await store.stat("w/j/1/a")).toBeUndefined();
    await put(store, "w/j/1/a", large);
    expect(await store.stat("w/j/1/a")).toEqual({ size: large.length, sha256: sha256(large) });
    expect((await buffer(await store.get("w/j/1/a"))).equals(large)).toBe(true);
  });

  it("accepts the same content again, and rejects other content under the same key", async () => {
    const store = open();
    await put(store, "k/1", "one");
    await put(store, "k/1", "one");
    await expect(put(store, "k/1", "two")).rejects.toMatchObject({ code: "ARTIFACT_EXISTS", retryable: false });
    expect(await readText(store, "k/1")).toBe("one");
  });

  it("accepts the same content from two writers at once", async () => {
    const store = open();
    await Promise.all([put(store, "k/1", large), put(store, "k/1", large), put(store, "k/1", large)]);
    expect(await store.stat("k/1")).toEqual({ size: large.length, sha256: sha256(large) });
  });

  it("accepts one of two different contents at once, completely, and rejects the other", async () => {
    const store = open();
    const other = Buffer.alloc(large.length, "x");
    const ends = await Promise.allSettled([put(store, "k/1", large), put(store, "k/1", other)]);
    const rejected = ends.flatMap((end) => (end.status === "rejected" ? [end.reason.code] : []));
    expect(rejected).toEqual(["ARTIFACT_EXISTS"]);
    const winner = ends[0]?.status === "fulfilled" ? large : other;
    expect(await store.stat("k/1")).toEqual({ size: large.length, sha256: sha256(winner) });
  });

  it("keeps the content of a newer attempt when an older one writes late", async () => {
    const store = open();
    const job = newId();
    const newer = artifactKey(job, 2, sha256("newer"));
    await put(store, newer, "newer");
    // The old attempt writes under its own epoch; even under the newer key it changes nothing.
    await put(store, artifactKey(job, 1, sha256("older")), "older");
    await expect(put(store, newer, "older")).rejects.toMatchObject({ code: "ARTIFACT_EXISTS" });
    const overwrites = (await readText(store, newer)) === "newer" ? 0 : 1;
    recordFigure("overwrites", overwrites, "", store.kind);
    expect(overwrites).toBe(0);
  });

  it.each([
    ["longer", `${large}x`],
    ["shorter", large.subarray(1)],
    ["different", Buffer.concat([large.subarray(1), Buffer.from("x")])],
  ])("stores nothing of a file that is %s than declared", async (_, really) => {
    const store = open();
    await expect(put(store, "k/1", really, large)).rejects.toMatchObject({ code: "ARTIFACT_CHANGED", retryable: true });
    expect(await store.stat("k/1")).toBeUndefined();
  });

  it("reports missing content", async () => {
    await expect(open().get("k/none")).rejects.toMatchObject({
      code: "ARTIFACT_MISSING",
      message: expect.stringContaining("k/none"),
    });
  });

  it("removes a key or all keys that continue it after a slash, and no others", async () => {
    const store = open();
    for (const key of ["2026-11-16/a/1/x", "2026-11-16/a/2/y", "2026-11-16/b/1/z", "2026-11-160/c", "2026-11-09/d"])
      await put(store, key, key);
    expect(await store.remove("2026-11-16")).toBe(3);
    expect(await store.remove("2026-11-16")).toBe(0);
    expect(await store.remove("2026-11-09/d")).toBe(1);
    expect(await readText(store, "2026-11-160/c")).toBe("2026-11-160/c");
  });

  it.each([[""], ["/"], ["../x"], ["a/../b"], ["a//b"], ["a/"], [".incoming"], ["a\0"], ["a?b"]])(
    "rejects the key %j",
    async (key) => {
      const store = open();
      for (const act of [
        () => store.stat(key),
        () => store.get(key),
        () => put(store, key, "x"),
        () => store.remove(key),
      ]) {
        await expect((async () => act())()).rejects.toMatchObject({ code: "INVALID_INPUT" });
      }
    },
  );

  it("stops with the signal and stores nothing", async () => {
    const store = open();
    const given = put(store, "k/1", large, large, AbortSignal.abort(new Error("enough")));
    await expect(given).rejects.toThrow("enough");
    expect(await store.stat("k/1")).toBeUndefined();
  });
});

describe("a directory", () => {
  it("sweeps files that dead writers left more than an hour ago, with its first artifact", async () => {
    const root = fresh();
    fs.mkdirSync(path.join(root, ".incoming"), { recursive: true });
    const [old, young] = ["old", "young"].map((name) => path.join(root, ".incoming", name));
    for (const file of [old!, young!]) fs.writeFileSync(file, "half");
    fs.utimesSync(old!, new Date(0), new Date(0));
    const store = fileStore(root);
    await put(store, "k/1", "x");
    expect(fs.readdirSync(path.join(root, ".incoming"))).toEqual(["young"]);
    expect(await store.sweep(0)).toBe(1);
  });

  it("detects that a file has changed", async () => {
    const root = fresh();
    const store = fileStore(root);
    await put(store, "k/1", "sound");
    expect(await store.stat("k/1")).toMatchObject({ sha256: sha256("sound") });
    fs.writeFileSync(path.join(root, "k/1"), "rotte");
    expect(await store.stat("k/1")).toMatchObject({ size: 5, sha256: sha256("rotte") });
  });

  it("follows no link and shows no path", async () => {
    const root = fresh();
    const store = fileStore(root);
    await put(store, "k/1", "x");
    fs.symlinkSync("/etc/passwd", path.join(root, "k/2"));
    expect(await store.stat("k/2")).toBeUndefined();
    await expect(store.get("k/2")).rejects.toMatchObject({ code: "ARTIFACT_MISSING" });
    fs.writeFileSync(path.join(root, "flat"), "x");
    const below = put(store, "flat/1", "x");
    await expect(below).rejects.toMatchObject({
      code: "STORE_UNAVAILABLE",
      message: expect.not.stringContaining(root),
    });
  });

  it("has no links for browsers", async () =>
    expect(await fileStore(fresh()).link("k/1", { fileName: "a", seconds: 60 })).toBeUndefined());
});

describe("the URL of a store", () => {
  const credentials = { accessKeyId: "id", secretAccessKey: "very secret" };

  it.each([["file:///tmp/a%20b"], ["file:./relative"], ["file:relative/dir"]])("may be %s", (url) => {
    expect(openStore(url).kind).toBe("file");
  });

  it("resolves a relative directory by the working directory", async () => {
    const relative = path.relative(process.cwd(), fresh());
    await put(openStore(`file:${relative}`), "k/1", "x");
    expect(fs.readFileSync(path.join(relative, "k/1"), "utf8")).toBe("x");
  });

  it.each([
    ["s3://bucket", "https://bucket.s3.us-east-1.amazonaws.com/k"],
    ["s3://bucket/pre/fix/?region=eu-west-1", "https://bucket.s3.eu-west-1.amazonaws.com/pre/fix/k"],
    ["s3://my.bucket", "https://s3.us-east-1.amazonaws.com/my.bucket/k"],
    [
      "s3://bucket?endpoint=https://x.r2.cloudflarestorage.com&region=auto",
      "https://x.r2.cloudflarestorage.com/bucket/k",
    ],
    ["s3://bucket?endpoint=https://fly.storage.tigris.dev&style=host", "https://bucket.fly.storage.tigris.dev/k"],
    ["s3://bucket?endpoint=http://localhost:9000/base/", "http://localhost:9000/base/bucket/k"],
  ])("%s leads to %s", async (url, leads) => {
    const link = await openStore(url, credentials).link("k", { fileName: "k", seconds: 60 });
    expect(link?.split("?")[0]).toBe(leads);
  });

  it.each([
    ["gs://bucket"],
    ["file://host/dir"],
    ["file:"],
    ["s3://id:very-secret@bucket"],
    ["s3://bucket?secretAccessKey=very-secret"],
    ["s3://B_ucket"],
    ["s3://bucket/a/../../b c"],
    ["s3://bucket?endpoint=localhost:9000"],
    ["s3://bucket?style=both"],
    ["s3:bucket"],
  ])("is not %s, and nothing of it is repeated", (url) => {
    expect(() => openStore(url, credentials)).toThrow(
      expect.objectContaining({
        code: "INVALID_INPUT",
        field: "store",
        message: expect.not.stringContaining("secret"),
      }),
    );
  });

  it("of a bucket needs credentials", () => {
    expect(() => openStore("s3://bucket")).toThrow(/needs an access key id/);
  });
});
