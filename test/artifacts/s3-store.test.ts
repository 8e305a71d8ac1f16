// The S3 store against a fake server that checks signatures and hashes: errors, retries, unsupported headers, links.
import { createHash } from "node:crypto";
import fsp from "node:fs/promises";
import { inspect } from "node:util";
import { afterEach, beforeEach, describe, expect, it } from "vitest";
import { type ArtifactStore, type Credentials, openStore } from "../../src/artifacts/open-store.ts";
import { s3Store } from "../../src/artifacts/s3-store.ts";
import { computeSignature, type S3Server, startS3 } from "../support/fakes/s3-server.ts";
import { put, readText, s3StoreOn, sha256 } from "../support/fakes/stores.ts";

let server: S3Server;
let pauses: number[];
beforeEach(async () => {
  pauses = [];
  server = await startS3();
});
afterEach(() => server.close());

const bucket = (change: Partial<Credentials> = {}): ArtifactStore => s3StoreOn(server, pauses, change);

describe("a bucket", () => {
  it("is signed as Amazon's documentation shows", () => {
    const request = {
      method: "GET",
      url: "/test.txt",
      headers: {
        host: "examplebucket.s3.amazonaws.com",
        range: "bytes=0-9",
        "x-amz-content-sha256": sha256(""),
        "x-amz-date": "20130524T000000Z",
      },
      signedHeaders: ["host", "range", "x-amz-content-sha256", "x-amz-date"],
      payload: sha256(""),
      amzDate: "20130524T000000Z",
      region: "us-east-1",
    };
    expect(computeSignature(request, "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY")).toBe(
      "f0e8bdb87c964420e857bd35b5d6ed310bd44f0170aba48dd91039c6036bdb41",
    );
  });

  it("stores content type, hash and checksum with the object, under the prefix", async () => {
    await put(bucket(), "k/1", "x");
    expect([...server.objects]).toEqual([
      [
        "pre/k/1",
        {
          body: Buffer.from("x"),
          headers: {
            "content-type": "text/plain",
            "x-amz-meta-sha256": sha256("x"),
            "x-amz-checksum-sha256": createHash("sha256").update("x").digest("base64"),
          },
        },
      ],
    ]);
  });

  it.each<[what: string, change: Partial<Credentials>]>([
    ["a wrong secret", { secretAccessKey: "wrong" }],
    ["a wrong key id", { accessKeyId: "wrong" }],
  ])("rejects %s without a retry, and shows no secret", async (_, change) => {
    const store = bucket(change);
    for (const act of [
      () => put(store, "k/1", Buffer.alloc(3_000_000, 1)),
      () => store.stat("k/1"),
      () => store.get("k/1"),
      () => store.remove("k"),
    ]) {
      const error = await act().then(
        () => undefined,
        (thrown) => thrown,
      );
      expect(error).toMatchObject({
        code: "STORE_DENIED",
        retryable: false,
        remedy: expect.stringContaining("access key"),
      });
      for (const secret of [
        ...Object.values(server.credentials),
        ...Object.values(change).filter((word) => word !== "wrong"),
      ]) {
        expect(inspect(error, { depth: 9 })).not.toContain(secret);
      }
    }
    expect(server.objects.size).toBe(0);
    expect(pauses).toEqual([]);
  });

  it("shows no credentials when it is printed", () => {
    const printed = inspect(bucket({ sessionToken: "a session token" }), { depth: 9, showHidden: true, getters: true });
    for (const secret of [...Object.values(server.credentials), "a session token"])
      expect(printed).not.toContain(secret);
  });

  it("reports a missing bucket and a wrong clock", async () => {
    const elsewhere = openStore(`s3://no-such-bucket?endpoint=${server.endpoint}`, server.credentials);
    const missing = { code: "STORE_MISSING", message: expect.stringContaining("no-such-bucket") };
    await expect(put(elsewhere, "k/1", "x")).rejects.toMatchObject(missing);
    await expect(elsewhere.get("k/1")).rejects.toMatchObject(missing);
    server.skewMs = 3600_000;
    await expect(put(bucket(), "k/1", "x")).rejects.toMatchObject({
      code: "STORE_DENIED",
      remedy: "Correct the clock of the machine",
    });
  });

  it("reports the actual region of a bucket", async () => {
    server.failures.push({ method: "PUT", status: 301, headers: { "x-amz-bucket-region": "eu-north-1" } });
    await expect(put(bucket(), "k/1", "x")).rejects.toMatchObject({
      code: "STORE_MISSING",
      remedy: expect.stringContaining("region=eu-north-1"),
    });
  });

  it.each([500, 502, 503, 429, 409])("is retried after %i, with growing pauses", async (status) => {
    server.failures.push(...Array.from({ length: 3 }, () => ({ method: "PUT", status })));
    await put(bucket(), "k/1", Buffer.alloc(600_000, 7));
    expect(server.objects.get("pre/k/1")?.body.equals(Buffer.alloc(600_000, 7))).toBe(true);
    expect(pauses).toHaveLength(3);
    for (const [index, ms] of pauses.entries()) {
      expect(ms).toBeGreaterThanOrEqual(100 * 2 ** index);
      expect(ms).toBeLessThanOrEqual(200 * 2 ** index);
    }
  });

  it("is retried after its retry-after, up to a maximum", async () => {
    server.failures.push({ method: "PUT", status: 503, headers: { "retry-after": "7" } });
    server.failures.push({
      method: "PUT",
      status: 503,
      headers: { "retry-after": new Date(Date.now() + 9_000).toUTCString() },
    });
    server.failures.push({ method: "PUT", status: 429, headers: { "retry-after": "86400" } });
    await put(bucket(), "k/1", "x");
    expect(pauses[0]).toBe(7000);
    expect(pauses[1]).toBeGreaterThan(5000);
    expect(pauses[1]).toBeLessThanOrEqual(9000);
    expect(pauses[2]).toBe(30_000);
  });

  it("fails after three retries", async () => {
    server.failures.push(...Array.from({ length: 4 }, () => ({ method: "PUT", status: 503, code: "SlowDown" })));
    await expect(put(bucket(), "k/1", "x")).rejects.toMatchObject({
      code: "STORE_UNAVAILABLE",
      retryable: true,
      message: expect.stringContaining("503 SlowDown"),
    });
    expect(server.log).toHaveLength(4);
    const { endpoint } = server;
    await server.close();
    const gone = s3Store(
      { bucket: "b", prefix: "", endpoint: new URL(endpoint), region: "r", style: "path", pause: async () => {} },
      server.credentials,
    );
    await expect(gone.stat("k/1")).rejects.toMatchObject({
      code: "STORE_UNAVAILABLE",
      message: expect.stringContaining("ECONNREFUSED"),
    });
  });

  it("finds its own object when only the response was lost", async () => {
    server.failures.push({ method: "PUT", status: 0, cut: true, after: true });
    await put(bucket(), "k/1", "x");
    expect(server.log).toEqual([
      "PUT /artifacts/pre/k/1 cut",
      "PUT /artifacts/pre/k/1 412",
      "HEAD /artifacts/pre/k/1 200",
    ]);
  });

  it.each([
    ["if-none-match", 501, "NotImplemented"],
    ["if-none-match", 400, "NotImplemented"],
    ["x-amz-checksum-sha256", 400, "InvalidArgument"],
  ])("is used without %s after a response %i %s, also for later requests", async (header, status, code) => {
    server.unknownHeaders.set(header, { status, code });
    const store = bucket();
    await put(store, "k/1", "one");
    server.log.length = 0;
    await put(store, "k/2", "two");
    expect(server.log.filter((line) => line.startsWith("PUT"))).toEqual(["PUT /artifacts/pre/k/2 200"]);
    expect(await store.stat("k/2")).toEqual({ size: 3, sha256: sha256("two") });
    await expect(put(store, "k/2", "other")).rejects.toMatchObject({ code: "ARTIFACT_EXISTS" });
    expect(await readText(store, "k/2")).toBe("two");
  });

  it("never completes an upload of a changed file, even to a server that does not verify it", async () => {
    server.careless = true;
    await expect(put(bucket(), "k/1", "xxxxx", "yyyyy")).rejects.toMatchObject({ code: "ARTIFACT_CHANGED" });
    expect(server.objects.size).toBe(0);
  });

  it("is read and hashed when it returns no hash", async () => {
    await put(bucket(), "k/1", "x");
    server.forgetful = true;
    expect(await bucket().stat("k/1")).toEqual({ size: 1, sha256: sha256("x") });
  });

  it("rejects more than 5 GB", async () => {
    const handle = await fsp.open(import.meta.filename, "r");
    const claim = { name: "film.mp4", handle, size: 5 * 1024 ** 3 + 1, sha256: sha256(""), contentType: "video/mp4" };
    await expect(bucket().put("k/1", claim)).rejects.toMatchObject({
      code: "ARTIFACT_TOO_LARGE",
      message: expect.stringContaining("5 GB"),
    });
    await handle.close();
    expect(server.log).toEqual([]);
  });

  it("has links for browsers that download as attachment, are valid for at most five minutes, and open nothing else", async () => {
    const store = bucket({ sessionToken: "a/session+token=" });
    await put(bucket(), "k/1", "<script>");
    const link = (await store.link("k/1", { fileName: 'Bericht "ü" (1)*.html', seconds: 86_400 }))!;
    const answer = await fetch(link);
    expect([answer.status, await answer.text()]).toEqual([200, "<script>"]);
    expect(answer.headers.get("content-disposition")).toBe(
      "attachment; filename=\"Bericht ___ _1__.html\"; filename*=UTF-8''Bericht%20%22%C3%BC%22%20%281%29%2A.html",
    );
    expect((await fetch(link.replace("/k/1", "/k/2"))).status).toBe(403);
    expect((await fetch(link.replace("attachment", "inline"))).status).toBe(403);
    server.skewMs = 295_000;
    expect((await fetch(link)).status).toBe(200);
    server.skewMs = 301_000;
    expect((await fetch(link)).status).toBe(403);
  });
});
