// Kills while a job writes its log. A line is safe once the next flush has returned: it is stored once, in order,
// without gaps. Lines after the last flush may be lost; the test measures how many.
import fs from "node:fs";
import path from "node:path";
import { describe, expect, it } from "vitest";
import { faultProxy, waitFor } from "../../src/testing/index.ts";
import { temporaryDirectory } from "../support/cleanup.ts";
import { recordFigure } from "../support/figures.ts";
import { ROOT } from "../support/processes/build.ts";
import { countedEffects } from "../support/processes/effects.ts";
import { FULL } from "../support/processes/fault-checks.ts";
import { processFixture } from "../support/processes/process-fixture.ts";
import { startRecordedWorker } from "../support/processes/recorded-worker.ts";
import { startWorker, type WorkerProcess } from "../support/processes/workers.ts";

const CHATTER = path.join(ROOT, "test/fixtures/pipelines/chatter.mjs");

const { database, stillwake, client, observer } = await processFixture();

describe("kill -9 while a job writes 10,000 lines per second", () => {
  const kills = { runner: FULL ? 200 : 12, worker: FULL ? 50 : 5 };

  it(`of its runner, ${kills.runner} times: every flushed line is stored`, {
    timeout: 60_000 + kills.runner * 3_000,
  }, async () => {
    await startWorker({ url: database.url, pipelines: CHATTER, args: ["--slots", "1"] });
    const job = await startLoggingJob();
    for (let kill = 1; kill <= kills.runner; kill++) process.kill(await job.waitForFlushes(kill), "SIGKILL");
    await job.finish(kills.runner + 1, "runner");
  });

  it(`of the whole worker, ${kills.worker} times: every flushed line is stored`, {
    timeout: 60_000 + kills.worker * 10_000,
  }, async () => {
    const start = (number: number) =>
      startWorker({ url: database.url, pipelines: CHATTER, args: ["--slots", "1", "--name", `writer-${number}`] });
    const workers = new Map<string, WorkerProcess>();
    for (const number of [0, 1]) workers.set(`writer-${number}`, await start(number));
    for (const worker of workers.values()) await worker.waitForLine("hints.ready");
    const job = await startLoggingJob();
    for (let kill = 1; kill <= kills.worker; kill++) {
      await job.waitForFlushes(kill);
      const { worker: name } = await stillwake.get(job.id);
      workers.get(name!)!.signal("SIGKILL");
      await workers.get(name!)!.exited;
      workers.delete(name!);
      workers.set(`writer-${kill + 1}`, await start(kill + 1));
    }
    await job.finish(kills.worker + 1, "worker");
  });
});

interface LoggingJob {
  id: string;
  /** Waits until the attempt of this epoch has flushed a few times, and then a random time. Returns the pid of its runner. */
  waitForFlushes(epoch: number): Promise<number>;
  /** Lets the job finish and checks every line of every epoch. */
  finish(epochs: number, killed: string): Promise<void>;
}

async function startLoggingJob(): Promise<LoggingJob> {
  const notes = temporaryDirectory("notes");
  const { id } = await stillwake.enqueue("chatter", { observer: observer.url, notes });
  const flushes = (epoch: number) =>
    observer.reports.filter(
      (report) => report.job === id && report.step === "flushed" && report.epoch === String(epoch),
    );
  const waitForFlushes = async (epoch: number) => {
    const wanted = 1 + Math.floor(Math.random() * 4);
    await waitFor(() => flushes(epoch).length >= wanted, { timeout: 30_000, interval: 2, what: "the job to flush" });
    // The kill must be able to occur anywhere between two batches.
    await new Promise((resolve) => setTimeout(resolve, Math.random() * 150));
    return flushes(epoch)[0]!.pid;
  };
  return {
    id,
    waitForFlushes,
    async finish(epochs, killed) {
      await waitForFlushes(epochs);
      observer.openGate(`enough-${id}`);
      await stillwake.wait(id, { timeout: "30s" });
      const { rows } = await client.query(
        "select epoch, array_agg(message order by seq) as messages from stillwake.logs where job_id = $1 and level = 'info' group by epoch order by epoch::bigint",
        [id],
      );
      const losses: number[] = [];
      const spans = { lines: 0, ms: 0 };
      let stored = 0;
      expect(rows.map(({ epoch }) => Number(epoch))).toEqual(Array.from({ length: epochs }, (_, n) => n + 1));
      for (const { epoch, messages } of rows as { epoch: string; messages: string[] }[]) {
        // Consecutive from the first, each once and in order.
        expect(
          messages.findIndex((line, index) => line !== `${epoch} ${index + 1}`),
          `epoch ${epoch}`,
        ).toBe(-1);
        const flushed = flushes(Number(epoch));
        const acknowledged = Number(flushed.at(-1)!.token);
        spans.lines += acknowledged - Number(flushed[0]!.token);
        spans.ms += flushed.at(-1)!.at - flushed[0]!.at;
        expect(messages.length, `flushed lines of epoch ${epoch}`).toBeGreaterThanOrEqual(acknowledged);
        const written = Number(fs.readFileSync(path.join(notes, epoch), "utf8"));
        losses.push(written - messages.length);
        stored += messages.length;
      }
      const seqs = await client.query("select count(*)::int, max(seq)::int from stillwake.feed where job_id = $1", [
        id,
      ]);
      expect(seqs.rows[0].count, "gaps in seq").toBe(seqs.rows[0].max);
      expect(losses.at(-1), "an attempt that ended by itself loses nothing").toBe(0);
      // Depends on how far the database lags behind, so a busy machine allows no fixed limit.
      const maximum = Math.max(...losses);
      recordFigure(`flushed lines lost, ${killed} killed`, 0, "", `${epochs - 1} kills, ${stored} lines stored`);
      recordFigure(`unflushed lines lost at most, ${killed} killed`, maximum, "lines", "10 lines are 1 ms");
      recordFigure(`lines flushed per second, ${killed} killed`, (spans.lines / spans.ms) * 1000, "/s");
    },
  };
}

describe("when the response to append_logs is lost", () => {
  it("each line is stored once, and the flush returns when it is stored", async () => {
    await using proxy = await faultProxy(database.url);
    const lines = 400;
    const cuts: Promise<void>[] = [];
    const counted = countedEffects("cut-off", {
      steps: 1,
      async before(job) {
        for (let line = 1; line <= lines; line++) {
          job.log.info(String(line));
          if (line % 40 !== 0) continue;
          cuts.push(proxy.cutAfterServerReceives((sent) => sent.includes("append_logs")));
          await job.flush();
          const { rows } = await client.query(
            "select max(message::int) as last from stillwake.logs where job_id = $1",
            [job.id],
          );
          if (rows[0].last !== line) throw new Error(`flush returned before line ${line} was there`);
        }
      },
    });
    const worker = await startRecordedWorker({
      url: proxy.url,
      directUrl: database.url,
      pool: "cut-off",
      pipelines: [counted.implementation],
      slots: 1,
    });
    const { id } = await stillwake.enqueue("cut-off", {});
    expect(await stillwake.wait(id, { timeout: "20s" })).toMatchObject({ attempt: 1, crashes: 0 });
    await Promise.all(cuts);
    const { rows } = await client.query("select message from stillwake.logs where job_id = $1 order by seq", [id]);
    expect(rows.map(({ message }) => Number(message))).toEqual(Array.from({ length: lines }, (_, n) => n + 1));
    recordFigure("lines stored twice after lost responses", 0, "", `${cuts.length} responses lost`);
    await worker.worker.stop();
  });
});
