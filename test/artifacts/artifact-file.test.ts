// job.artifactFile(): a readable copy of an artifact that this or an earlier attempt stored. The keeper fetches and
// verifies it. job-artifacts.test.ts covers workers that are killed.
import fs from "node:fs";
import path from "node:path";
import { describe, expect, it, onTestFinished } from "vitest";
import { pipeline } from "../../src/index.ts";
import { implement, type JobContext } from "../../src/worker/index.ts";
import { temporaryDirectory } from "../support/cleanup.ts";
import { startS3 } from "../support/fakes/s3-server.ts";
import { sha256 } from "../support/fakes/stores.ts";
import { inProcessFixture } from "../support/processes/in-process.ts";

const { run, start, stillwake, until, name, query, attempts } = await inProcessFixture();
const root = temporaryDirectory("artifact-files");
const twice = { retry: { attempts: 2, initial: "1ms", max: "1ms" } } as const;

interface Store {
  /** The `store` option of a worker. */
  options: { store: string; storeCredentials?: { accessKeyId: string; secretAccessKey: string }; scratch: string };
  read(key: string): Buffer;
  write(key: string, content: string): void;
  remove(key: string): void;
  /** How often content was read from it; undefined if it is not counted. */
  reads(): number | undefined;
}

const stores: Record<string, () => Promise<Store>> = {
  async "a directory"() {
    const store = fs.mkdtempSync(path.join(root, "store-"));
    const at = (key: string) => path.join(store, key);
    return {
      options: { store: `file:${store}`, scratch: path.join(root, "scratch") },
      read: (key) => fs.readFileSync(at(key)),
      write: (key, content) => {
        fs.rmSync(at(key));
        fs.writeFileSync(at(key), content);
      },
      remove: (key) => fs.rmSync(at(key)),
      reads: () => undefined,
    };
  },
  async "a bucket"() {
    const server = await startS3();
    onTestFinished(() => server.close());
    const at = (key: string) => `pre/${key}`;
    return {
      options: {
        store: `s3://${server.bucket}/pre?endpoint=${server.endpoint}`,
        storeCredentials: server.credentials,
        scratch: path.join(root, "scratch"),
      },
      read: (key) => server.objects.get(at(key))!.body,
      write: (key, content) => void Object.assign(server.objects.get(at(key))!, { body: Buffer.from(content) }),
      remove: (key) => void server.objects.delete(at(key)),
      reads: () => server.log.filter((line) => /^GET .* 200$/.test(line)).length,
    };
  },
};

const keyOf = async (job: string) =>
  (await query<{ key: string }>("select key from stillwake.artifacts where job_id = $1", [job]))[0]!.key;

/** The first attempt stores reports/a.json in a step and fails; the second runs `then`. */
function secondAttempt<T>(store: Store, content: string, then: (job: JobContext) => Promise<T>) {
  return run({ worker: store.options, pipeline: twice }, async (job) => {
    await job.step("make", async () => (await job.artifact("reports/a.json", () => content)).size);
    if (job.attempt === 1) throw new Error("fails after the artifact was stored");
    return then(job);
  });
}

describe.each(Object.keys(stores))("a file of an artifact in %s", (kind) => {
  it("is the file that this attempt produced, and nothing is fetched", async () => {
    const store = await stores[kind]!();
    const { job } = await run({ worker: store.options }, async (context) => {
      await context.artifact("reports/a.json", () => '{"made":1}');
      const file = await context.artifactFile("reports/a.json");
      const { mode } = fs.statSync(file);
      const inside = path.relative(await context.scratch(), file);
      return { inside, text: fs.readFileSync(file, "utf8"), mode: mode & 0o777 };
    });
    expect(job.failure).toBeNull();
    expect(job.output).toEqual({ inside: "artifacts/reports/a.json", text: '{"made":1}', mode: 0o400 });
    expect(store.reads() ?? 0).toBe(0);
  });

  it("is fetched once when an earlier attempt stored it, for concurrent and repeated calls", async () => {
    const store = await stores[kind]!();
    const content = "x".repeat(3_000_000);
    const { job } = await secondAttempt(store, content, async (context) => {
      const fetches = ["reports/a.json", "reports/a.json", "reports/a.json"].map((one) => context.artifactFile(one));
      const files = [...(await Promise.all(fetches)), await context.artifactFile("reports/a.json")];
      const { mode, ino } = fs.statSync(files[0]!);
      const again = fs.statSync(await context.artifactFile("reports/a.json")).ino;
      const scratch = await context.scratch();
      return {
        files: new Set(files.map((file) => path.relative(scratch, file))).size,
        inside: path.relative(scratch, files[0]!),
        same: sha256(fs.readFileSync(files[0]!)) === sha256(content),
        mode: mode & 0o777,
        kept: again === ino,
        left: fs.readdirSync(scratch),
      };
    });
    expect(job.failure).toBeNull();
    expect(job.output).toEqual({
      files: 1,
      inside: "artifacts/reports/a.json",
      same: true,
      mode: 0o400,
      kept: true,
      left: ["artifacts"],
    });
    expect(store.reads() ?? 1).toBe(1);
  });

  it("that user code has changed or removed is fetched again", async () => {
    const store = await stores[kind]!();
    const { job } = await secondAttempt(store, "content", async (context) => {
      const texts: string[] = [];
      for (const damage of [
        (file: string) => {
          fs.chmodSync(file, 0o600);
          fs.writeFileSync(file, "CONTENT");
        },
        (file: string) => fs.rmSync(file),
      ]) {
        damage(await context.artifactFile("reports/a.json"));
        texts.push(fs.readFileSync(await context.artifactFile("reports/a.json"), "utf8"));
      }
      return texts;
    });
    expect(job.failure).toBeNull();
    expect(job.output).toEqual(["content", "content"]);
    expect(store.reads() ?? 3).toBe(3);
  });

  it.each<[string, (store: Store, key: string) => void, string, RegExp]>([
    [
      "was lost by the store",
      (store, key) => store.remove(key),
      "ARTIFACT_MISSING",
      /^The artifact store no longer has reports\/a\.json\. .*from the start/,
    ],
    [
      "has other content now",
      (store, key) => store.write(key, "CONTENT"),
      "ARTIFACT_CHANGED",
      /^The stored content of reports\/a\.json differs from what the job stored/,
    ],
    ["was truncated", (store, key) => store.write(key, "con"), "ARTIFACT_CHANGED", /differs from what the job stored/],
    [
      "has grown",
      (store, key) => store.write(key, "content".repeat(100_000)),
      "ARTIFACT_CHANGED",
      /differs from what the job stored/,
    ],
  ])("is rejected when it %s, and nothing of it is left", async (_, damage, code, message) => {
    const store = await stores[kind]!();
    const seen: unknown[] = [];
    const { job } = await secondAttempt(store, "content", async (context) => {
      damage(store, await keyOf(context.id));
      const error = await context.artifactFile("reports/a.json").then(String, (thrown) => thrown);
      seen.push(error, fs.readdirSync(await context.scratch()));
      throw error;
    });
    expect(seen).toEqual([expect.objectContaining({ code, message: expect.stringMatching(message) }), []]);
    expect(job).toMatchObject({ state: "failed", attempt: 2, failure: { code } });
  });
});

describe("a file of an artifact", () => {
  it("that was never stored is an error with the existing names", async () => {
    const store = await stores["a directory"]!();
    const { job } = await run({ worker: store.options }, async (context) => {
      const none = await context.artifactFile("a.json").catch((error) => error.message);
      await context.artifact("b.json", () => "b");
      await context.artifact("c/d.json", () => "d");
      const code = await context.artifactFile("a.json").catch((error) => [error.code, error.message]);
      return [none, code];
    });
    expect(job.output).toEqual([
      'The job has no artifact "a.json". It has none yet; produce it with job.artifact first',
      ["ARTIFACT_MISSING", 'The job has no artifact "a.json". It has b.json, c/d.json'],
    ]);
  });

  it.each(["../a.json", "/etc/passwd", ""])("is rejected with the name %j", async (bad) => {
    const { job } = await run((context) => context.artifactFile(bad));
    expect(job).toMatchObject({ state: "failed", attempt: 1, failure: { code: "INVALID_INPUT" } });
  });

  it("needs a store; without one the error has a remedy", async () => {
    const { job } = await run((context) => context.artifactFile("a.json"));
    expect(job).toMatchObject({ state: "failed", failure: { code: "NO_STORE" } });
  });

  it("of many megabytes is streamed", async () => {
    const store = await stores["a directory"]!();
    const block = Buffer.alloc(1024 * 1024, "x");
    const { job } = await run({ worker: store.options, pipeline: twice }, async (context) => {
      await context.step("make", async () => {
        await context.artifact("big.bin", async function* () {
          for (let n = 0; n < 64; n++) yield block;
        } as never);
        return null;
      });
      if (context.attempt === 1) throw new Error("fails after the artifact was stored");
      return fs.statSync(await context.artifactFile("big.bin")).size;
    });
    expect(job.output).toBe(64 * 1024 * 1024);
  });

  it("is not fetched for an attempt that was replaced", async () => {
    const store = await stores["a directory"]!();
    const contract = pipeline(name(), { retry: { attempts: 3 } });
    const { id } = await stillwake.enqueue(contract, null);
    const late: unknown[] = [];
    let lateIsDone: Promise<unknown> | undefined;
    const code = implement(contract, async (job) => {
      await job.step("make", async () => (await job.artifact("a.txt", () => "content")).size);
      if (job.fencingToken > 1) return fs.readFileSync(await job.artifactFile("a.txt"), "utf8");
      // Its copy is gone, so it must fetch, but its lease is gone too.
      fs.rmSync(await job.artifactFile("a.txt"));
      await query("select stillwake.recover_lease(l, 1000) from stillwake.leases l where $1 = any (l.job_ids)", [
        job.id,
      ]);
      lateIsDone = job.artifactFile("a.txt").then(
        (file) => late.push(file),
        (error) => late.push(error.code),
      );
      await lateIsDone;
      return "late";
    });
    await start([code], { ...store.options, poll: "20ms", lease: "1h" });
    expect(await until(id)).toMatchObject({ state: "completed", output: "content", crashes: 1 });
    await lateIsDone;
    expect(late).toEqual([expect.stringMatching(/STOPPED_REPLACED|ATTEMPT_ENDED/)]);
    expect((await attempts(id)).map(({ outcome }) => outcome)).toEqual(["lost", "completed"]);
  });
});
