// job.artifact() from pipeline code to the store and its row: complete or absent, produced once, never overwritten.
import { createHash } from "node:crypto";
import fs from "node:fs";
import path from "node:path";
import { Readable } from "node:stream";
import { beforeAll, describe, expect, it, onTestFinished } from "vitest";
import { pipeline } from "../../src/index.ts";
import { implement, type JobContext } from "../../src/worker/index.ts";
import { temporaryDirectory } from "../support/cleanup.ts";
import { deferred } from "../support/deferred.ts";
import { startS3 } from "../support/fakes/s3-server.ts";
import { recordFigure } from "../support/figures.ts";
import { buildPackage } from "../support/processes/build.ts";
import { inProcessFixture } from "../support/processes/in-process.ts";
import { otherUserUnavailable, skipReason } from "../support/processes/other-users.ts";
import { gated } from "../support/processes/script-steps.ts";
import { startStepObserver } from "../support/processes/step-observer.ts";
import { startWorker } from "../support/processes/workers.ts";

const { database, run, start, stillwake, until, name, query, attempts, checkpoints } = await inProcessFixture();
const root = temporaryDirectory("job-artifacts");
const store = path.join(root, "store");
const worker = { store: `file:${store}`, scratch: path.join(root, "scratch") };
const twice = { retry: { attempts: 2, initial: "1ms", max: "1ms" } } as const;

beforeAll(buildPackage);

interface Row {
  name: string;
  epoch: string;
  size: string;
  sha256: string;
  content_type: string;
  key: string;
}
const rows = (job: string) =>
  query<Row>(
    "select name, epoch, size, sha256, content_type, key from stillwake.artifacts where job_id = $1 order by name",
    [job],
  );
const sha256 = (content: string | Buffer) => createHash("sha256").update(content).digest("hex");
const stored = (key: string) => path.join(store, key);
/** All stored objects of a job, by key. */
const objects = (job: string) =>
  fs.existsSync(store)
    ? (fs.readdirSync(store, { recursive: true }) as string[]).filter(
        (one) => one.includes(job) && fs.statSync(path.join(store, one)).isFile(),
      )
    : [];

describe("an artifact", () => {
  it("is stored completely, and its row has its metadata and key", async () => {
    const { job, id } = await run({ worker }, (context) =>
      context.artifact("reports/sbom.json", () => '{"components":[]}'),
    );
    const made = {
      name: "reports/sbom.json",
      size: 17,
      sha256: sha256('{"components":[]}'),
      contentType: "application/json",
    };
    expect(job.output).toEqual({ ...made, existing: false });
    const [row] = await rows(id);
    expect(row).toMatchObject({
      name: made.name,
      epoch: "1",
      size: "17",
      sha256: made.sha256,
      content_type: made.contentType,
    });
    expect(row!.key).toMatch(new RegExp(`^\\d{4}-\\d\\d-\\d\\d/${id}/1/${made.sha256}$`));
    expect(fs.readFileSync(stored(row!.key), "utf8")).toBe('{"components":[]}');
  });

  const ways: [string, (job: JobContext) => Promise<unknown>][] = [
    ["a text", (job) => job.artifact("a.txt", () => "content")],
    ["bytes", (job) => job.artifact("a.txt", () => Buffer.from("content"))],
    ["a Node stream", (job) => job.artifact("a.txt", () => Readable.from(["con", "tent"]))],
    ["a web stream", (job) => job.artifact("a.txt", () => new Blob(["con", "tent"]).stream() as never)],
    [
      "an async generator",
      (job) =>
        job.artifact("a.txt", async function* () {
          yield "con";
          yield Buffer.from("tent");
        } as never),
    ],
    ["a file written to its path", (job) => job.artifact("a.txt", (file) => fs.promises.writeFile(file, "content"))],
    [
      "a file that a command wrote to its path",
      (job) =>
        job.artifact("a.txt", async (file) => void (await job.exec("sh", ["-c", 'printf content > "$0"', file]))),
    ],
    [
      "a file of the scratch directory",
      async (job) => {
        const file = path.join(await job.scratch(), "made.txt");
        await fs.promises.writeFile(file, "content");
        return job.artifact("a.txt", () => ({ file }));
      },
    ],
  ];
  it.each(ways)("can be produced from %s", async (_, way) => {
    const { job, id } = await run({ worker }, way);
    expect(job.failure).toBeNull();
    const [row] = await rows(id);
    expect(row).toMatchObject({ size: "7", sha256: sha256("content"), content_type: "text/plain; charset=utf-8" });
    expect(fs.readFileSync(stored(row!.key), "utf8")).toBe("content");
  });

  it("of many megabytes is streamed", async () => {
    const block = Buffer.alloc(1024 * 1024, "x");
    const { job, id } = await run({ worker }, (context) =>
      context.artifact("big.bin", async function* () {
        for (let n = 0; n < 64; n++) yield block;
      } as never),
    );
    expect(job.output).toMatchObject({ size: 64 * 1024 * 1024 });
    const [row] = await rows(id);
    expect(fs.statSync(stored(row!.key)).size).toBe(64 * 1024 * 1024);
  });

  it("gets its row last: there is none while it is produced, and none if it cannot be stored", async () => {
    const seen: unknown[] = [];
    const good = await run({ worker }, (context) =>
      context.artifact("a.txt", async function* () {
        yield "one";
        seen.push(await rows(context.id), objects(context.id));
        yield "two";
        seen.push(await rows(context.id), objects(context.id));
      } as never),
    );
    expect(seen).toEqual([[], [], [], []]);
    expect(await rows(good.id)).toHaveLength(1);

    const blocked = path.join(root, "a-file");
    fs.writeFileSync(blocked, "");
    const bad = await run(
      { worker: { ...worker, store: `file:${blocked}/store` }, pipeline: { retry: { attempts: 1 } } },
      (context) => context.artifact("a.txt", () => "x"),
    );
    expect(bad.job.state).toBe("failed");
    expect(await rows(bad.id)).toEqual([]);
  });

  it("whose producer fails is absent, and leaves nothing in the store", async () => {
    const { job, id } = await run({ worker, pipeline: { retry: { attempts: 1 } } }, (context) =>
      context.artifact("half.txt", async function* () {
        yield "half of it";
        throw new Error("broke off");
      } as never),
    );
    expect(job.failure).toMatchObject({ cause: { message: "broke off" } });
    expect([await rows(id), objects(id)]).toEqual([[], []]);
  });

  it("of zero bytes is a retryable failure", async () => {
    const { job, id } = await run({ worker, pipeline: twice }, (context) =>
      context.artifact("clip.mp4", () => (context.attempt === 1 ? "" : "frames")),
    );
    expect(job).toMatchObject({ state: "completed", attempt: 2, output: { size: 6 } });
    expect((await attempts(id))[0]!.failure).toMatchObject({
      code: "EMPTY_ARTIFACT",
      message: expect.stringContaining("clip.mp4 is empty"),
    });
  });

  it("that the producer did not write is reported as missing", async () => {
    const { job } = await run({ worker, pipeline: { retry: { attempts: 1 } } }, (context) =>
      context.artifact("clip.mp4", () => {}),
    );
    expect(job.failure).toMatchObject({
      cause: { code: "EMPTY_ARTIFACT", message: expect.stringContaining("clip.mp4 was not written") },
    });
  });

  it("requested twice in one attempt is produced once", async () => {
    let calls = 0;
    const { job, id } = await run({ worker }, async (context) => {
      const make = () => {
        calls += 1;
        return "content";
      };
      return [await context.artifact("a.txt", make), await context.artifact("a.txt", make)];
    });
    expect(calls).toBe(1);
    expect(job.output).toMatchObject([{ existing: false }, { existing: true }]);
    expect(await rows(id)).toHaveLength(1);
  });

  it("needs a store; without one the job fails at once with a remedy", async () => {
    const { job } = await run((context) => context.artifact("a.txt", () => "x"));
    expect(job).toMatchObject({ state: "failed", attempt: 1 });
    expect(job.failure!.message).toMatch(/This worker has no artifact store\. .*store to "file:/);
  });
});

describe("the next attempt", () => {
  /** The first attempt stores it and fails; then `between` runs; the second requests it again. */
  async function again(between: (row: Row) => void, contents = ["content", "content"]) {
    let calls = 0;
    const ran = await run({ worker, pipeline: twice }, async (context) => {
      if (context.attempt === 2) between((await rows(context.id))[0]!);
      const made = await context.artifact("a.txt", () => contents[calls++]!);
      if (context.attempt === 1) throw new Error("after it");
      return made;
    });
    expect(ran.job).toMatchObject({ state: "completed", attempt: 2 });
    return { ...ran, calls, row: (await rows(ran.id))[0]! };
  }

  it("does not produce it again when the store has it with the right hash", async () => {
    const { job, calls, row } = await again(() => {});
    expect(calls).toBe(1);
    expect(job.output).toMatchObject({
      existing: true,
      size: 7,
      sha256: sha256("content"),
      contentType: "text/plain; charset=utf-8",
    });
    expect(row.epoch).toBe("1");
  });

  it.each<[string, (file: string) => void]>([
    ["is gone", (file) => fs.rmSync(file)],
    ["was changed and has the same size", (file) => fs.writeFileSync(file, "CONTENT")],
    ["was truncated", (file) => fs.truncateSync(file, 3)],
    ["was emptied", (file) => fs.truncateSync(file, 0)],
    [
      "is a directory now",
      (file) => {
        fs.rmSync(file);
        fs.mkdirSync(file);
      },
    ],
    [
      "is a link to the right content elsewhere",
      (file) => {
        fs.renameSync(file, `${file}-moved`);
        fs.symlinkSync(`${file}-moved`, file);
      },
    ],
  ])("makes it again when the object %s", async (_, harm) => {
    const { job, calls, row } = await again(({ key }) => {
      fs.chmodSync(path.dirname(stored(key)), 0o700);
      fs.chmodSync(stored(key), 0o600);
      harm(stored(key));
    });
    expect(calls).toBe(2);
    expect(job.output).toMatchObject({ existing: false });
    expect(row.epoch).toBe("2");
    expect(fs.readFileSync(stored(row.key), "utf8")).toBe("content");
  });

  it("that produces other content replaces the row, and the old object is not overwritten", async () => {
    let first: Row | undefined;
    const { row, calls } = await again(
      (before) => {
        first = before;
        fs.renameSync(stored(before.key), `${stored(before.key)}.away`);
      },
      ["old content", "new content"],
    );
    fs.renameSync(`${stored(first!.key)}.away`, stored(first!.key));
    expect(calls).toBe(2);
    expect(row.key).not.toBe(first!.key);
    expect(fs.readFileSync(stored(first!.key), "utf8")).toBe("old content");
    expect(fs.readFileSync(stored(row.key), "utf8")).toBe("new content");
  });

  it("after a retry from the start produces it again", async () => {
    const contract = pipeline(name(), { retry: { attempts: 1 } });
    let calls = 0;
    const code = implement(contract, async (job) => {
      const { existing } = await job.artifact("a.txt", () => `content ${++calls}`);
      if (calls === 1) throw new Error("the first time");
      return existing;
    });
    await start([code], worker);
    const { id } = await stillwake.enqueue(contract, null);
    await until(id);
    await stillwake.retry(id, { fromStart: true });
    expect(await until(id, ({ state }) => state === "completed")).toMatchObject({ output: false });
    expect(calls).toBe(2);
    expect(await rows(id)).toMatchObject([{ sha256: sha256("content 2") }]);
  });

  it("after a kill of the runner finds the stored artifact, and does not produce it again", async () => {
    const observer = await startStepObserver();
    await startWorker({ url: database.url, args: ["--slots", "1"], env: { STILLWAKE_CRASH: "before:make" } });
    const steps = [{ name: "make", act: "artifact", file: "a.txt", text: "content" }];
    const { id } = await stillwake.enqueue("script", { observer: observer.url, steps });
    expect(await until(id)).toMatchObject({ state: "completed", attempt: 2, crashes: 1 });
    expect(observer.reportsOf(id).filter(({ event }) => event === "effect")).toHaveLength(2);
    expect(await checkpoints(id)).toMatchObject([{ step: "make", output: { size: 7, existing: true } }]);
    expect(await rows(id)).toMatchObject([{ epoch: "1", sha256: sha256("content") }]);
  });
});

describe("the file of an artifact that another attempt stored", () => {
  it("is passed from a killed worker to the next one", async () => {
    const server = await startS3();
    onTestFinished(() => server.close());
    const observer = await startStepObserver();
    const bucket = `s3://${server.bucket}/pre?endpoint=${server.endpoint}`;
    const env = {
      STILLWAKE_STORE_ACCESS_KEY_ID: server.credentials.accessKeyId,
      STILLWAKE_STORE_SECRET_ACCESS_KEY: server.credentials.secretAccessKey,
    };
    const begin = () => startWorker({ url: database.url, args: ["--slots", "1", "--store", bucket], env });
    const first = await begin();
    const { id } = await stillwake.enqueue("script", {
      observer: observer.url,
      steps: [
        { name: "make", act: "artifact", file: "a.txt", text: "from afar" },
        gated("wait", "dead"),
        { name: "read", act: "readArtifact", file: "a.txt" },
      ],
    });
    await observer.waitForReport((report) => report.job === id && report.step === "wait");
    await begin();
    first.signal("SIGKILL");
    await first.exited;
    observer.openGate("dead");
    expect(await until(id)).toMatchObject({ state: "completed", crashes: 1 });
    expect(await checkpoints(id)).toMatchObject([
      { step: "make", epoch: "1" },
      { step: "wait" },
      { step: "read", output: "from afar", epoch: "2" },
    ]);
  });

  it.skipIf(otherUserUnavailable)(
    `can be read by runners that run as another user${skipReason(otherUserUnavailable)}`,
    async () => {
      const observer = await startStepObserver();
      const config = path.join(root, "as-nobody.mjs");
      fs.writeFileSync(config, "export default { runAs: { uid: 65534, gid: 65534 } };");
      const env = { STILLWAKE_CRASH: "after:make" };
      await startWorker({ url: database.url, args: ["--slots", "1", "--config", config], env });
      const { id } = await stillwake.enqueue("script", {
        observer: observer.url,
        steps: [
          { name: "make", act: "artifact", file: "a.txt", text: "for another user" },
          { name: "read", act: "readArtifact", file: "a.txt" },
        ],
      });
      expect(await until(id)).toMatchObject({ state: "completed", crashes: 1 });
      expect(await checkpoints(id)).toMatchObject([
        { step: "make" },
        { step: "read", output: "for another user", epoch: "2" },
      ]);
    },
  );
});

describe("an attempt that was replaced", () => {
  it("cannot replace the new artifact with its late one: the row is rejected, and nothing is overwritten", async () => {
    let overwritten = 0;
    const late: unknown[] = [];
    const { promise: newIsDone, resolve: release } = deferred();
    const contract = pipeline(name(), { retry: { attempts: 3 } });
    const { id } = await stillwake.enqueue(contract, null);
    let lateIsDone: Promise<unknown> | undefined;
    const code = implement(contract, async (job) => {
      const epoch = job.fencingToken;
      const made = job.artifact("report.txt", async () => {
        if (epoch === 1) {
          await query("select stillwake.recover_lease(l, 1000) from stillwake.leases l where $1 = any (l.job_ids)", [
            job.id,
          ]);
          await newIsDone;
          return "late content of the old attempt";
        }
        return "content of the new attempt";
      });
      if (epoch === 1) lateIsDone = made.catch((error) => void late.push(error));
      return (await made).sha256;
    });
    const { events } = await start([code], { ...worker, poll: "20ms", lease: "1h" });
    const job = await until(id);
    expect(job).toMatchObject({ state: "completed", output: sha256("content of the new attempt"), crashes: 1 });
    const before = await rows(id);
    const newObject = stored(before[0]!.key);
    release();
    await lateIsDone;
    expect(late).toEqual([expect.objectContaining({ code: expect.stringMatching(/STOPPED_REPLACED|ATTEMPT_ENDED/) })]);
    expect(await rows(id)).toEqual(before);
    if (fs.readFileSync(newObject, "utf8") !== "content of the new attempt") overwritten += 1;
    expect(overwritten).toBe(0);
    expect(events.some((event) => event.kind === "write.refused" && event.job === id)).toBe(true);
    recordFigure("artifacts overwritten by a replaced attempt", overwritten);
  });
});

describe("the name of an artifact", () => {
  it.each(["report.json", "deep/er/report.v2.json", "naïve 漢字 🐘.txt", "x".repeat(255), "(a) [b] {c}, d'e & f.txt"])(
    "may be %j",
    async (good) => {
      const { job, id } = await run({ worker }, (context) => context.artifact(good, () => "x"));
      expect(job.failure).toBeNull();
      expect(await rows(id)).toMatchObject([{ name: good }]);
    },
  );

  it("is the same in every Unicode normalization form", async () => {
    const { job, id } = await run({ worker }, async (context) => [
      await context.artifact("caf\u00e9.txt", () => "x"),
      await context.artifact("cafe\u0301.txt", () => "y"),
    ]);
    expect(job.output).toMatchObject([{ existing: false }, { existing: true }]);
    expect(await rows(id)).toHaveLength(1);
  });

  it.each([
    ["../outside.txt", /has the part \.\./],
    ["/etc/passwd", /starts with a slash/],
    ["a//b", /has an empty part/],
    ["", /is empty/],
    ["a\u0000b", /U\+0000/],
    ["a\\b", /U\+005C/],
    ["CON.txt", /which Windows reserves/],
    ["ends.", /ends in a dot or a space/],
    ["x".repeat(256), /has 256 bytes, the limit is 255/],
    ["\u202egnp.exe", /U\+202E/],
  ])("cannot be %j: the job fails at once and its producer is not called", async (bad, message) => {
    let calls = 0;
    const { job, id } = await run({ worker }, (context) =>
      context.artifact(bad, () => {
        calls += 1;
        return "x";
      }),
    );
    expect(job).toMatchObject({ state: "failed", attempt: 1, failure: { code: "INVALID_INPUT" } });
    expect(job.failure!.message).toMatch(message);
    expect(calls).toBe(0);
    expect([await rows(id), objects(id)]).toEqual([[], []]);
  });
});

describe("a file for an artifact", () => {
  it.each<[string, (scratch: string) => string]>([
    ["outside the scratch directory", () => "/etc/hostname"],
    [
      "that is a link",
      (scratch) => {
        fs.symlinkSync("/etc/hostname", path.join(scratch, "link"));
        return path.join(scratch, "link");
      },
    ],
    [
      "behind a link",
      (scratch) => {
        fs.symlinkSync("/etc", path.join(scratch, "etc"));
        return path.join(scratch, "etc/hostname");
      },
    ],
  ])("%s is rejected, and nothing of it is stored", async (_, place) => {
    const { job, id } = await run({ worker, pipeline: { retry: { attempts: 1 } } }, async (context) => {
      const scratch = await context.scratch();
      return context.artifact("a.txt", () => ({ file: place(scratch) }));
    });
    expect(job).toMatchObject({ state: "failed", failure: { code: "OUTSIDE_SCRATCH" } });
    expect([await rows(id), objects(id)]).toEqual([[], []]);
    expect(await checkpoints(id)).toEqual([]);
  });
});
