// A job that writes far too much log. Another job in the same worker is not slowed down, the keeper's memory does not
// grow, and the log counts what was omitted.
import fs from "node:fs";
import path from "node:path";
import { beforeAll, describe, expect, it, onTestFinished } from "vitest";
import { settleAndClaim } from "../../src/db/calls/worker.ts";
import { Database } from "../../src/db/database.ts";
import { pipeline } from "../../src/index.ts";
import { waitFor } from "../../src/testing/index.ts";
import { WriteBuffer } from "../../src/worker/keeper/write-buffer.ts";
import { recordFigure } from "../support/figures.ts";
import { ROOT } from "../support/processes/build.ts";
import { FULL, round, waitForEnd } from "../support/processes/fault-checks.ts";
import { processFixture } from "../support/processes/process-fixture.ts";
import { startWorker, type WorkerProcess } from "../support/processes/workers.ts";

const { database, stillwake, client, observer } = await processFixture();
const MB = 2 ** 20;
const NEIGHBOURS = path.join(ROOT, "test/fixtures/pipelines/neighbours.mjs");

beforeAll(async () => {
  for (const name of ["chatting", "ticking"]) await stillwake.register(pipeline(name, { retry: { attempts: 1 } }));
});

describe("a command that writes without end", { timeout: 180_000 }, () => {
  it("does not slow down the steps of another job", async () => {
    const worker = await startWorker({ url: database.url, pipelines: NEIGHBOURS, args: ["--slots", "2"] });
    const bytes = FULL ? 1024 * MB : 128 * MB;
    const line = "0123456789".repeat(10);
    const jobs: string[] = [];
    const { spans, ticks, grewMb } = await beside(worker, { rounds: FULL ? 4 : 3 }, async () => {
      const { id, output } = await flood(`yes ${line} | head -c ${bytes}`);
      jobs.push(id);
      expect(output).toMatchObject({ code: 0, bytesOut: bytes });
      return output;
    });
    const name = `a neighbour's step beside ${bytes / MB} MB of output`;
    const { ratio50, ratio99 } = compare(name, ticks, spans);
    recordFigure(`keeper beside ${bytes / MB} MB of output`, grewMb, "MB", "growth of its peak");
    expect(ratio50).toBeLessThan(10);
    expect(ratio99).toBeLessThan(40);
    expect(grewMb).toBeLessThan(100);

    // Stored are the beginning, some of the rest, and the count of the missing lines: together all that was written.
    for (const [n, id] of jobs.entries()) {
      const stored = await storedOf(id);
      const seconds = (spans[n]!.to - spans[n]!.from) / 1000;
      expect(stored.omitted + stored.texts.filter((text) => line.startsWith(text)).length).toBe(
        Math.ceil(bytes / (line.length + 1)),
      );
      expect(stored.texts[0]).toBe(line);
      expect(stored.markers).toBeGreaterThanOrEqual(1);
      expect(stored.bytes).toBeLessThan((1000 + 200 * (seconds + 1)) * 150);
      if (n === 0) recordFigure(`stored of ${bytes / MB} MB of output`, round(stored.bytes / 1024), "KB");
    }
  });

  it("as one endless line is one truncated line of the log, with the count of the missing bytes", async () => {
    const worker = await startWorker({ url: database.url, pipelines: NEIGHBOURS, args: ["--slots", "1"] });
    const bytes = FULL ? 500_000_000 : 64_000_000;
    const before = peakMb(worker.pid);
    const { id, output } = await flood(`head -c ${bytes} /dev/zero | tr '\\0' x; echo; echo after`);
    expect(output).toMatchObject({ bytesOut: bytes + 7, linesOmitted: 0 });
    const { texts } = await storedOf(id);
    expect(texts).toHaveLength(2);
    const [, kept, missing] = /^(x+)… \((\d+) bytes omitted\)$/.exec(texts[0]!) ?? [];
    expect(kept!.length + Number(missing)).toBe(bytes);
    expect(texts[0]!.length).toBeLessThanOrEqual(16 * 1024);
    expect(texts[1]).toBe("after");
    const grewMb = round(peakMb(worker.pid) - before);
    recordFigure(`keeper beside one line of ${bytes / 1e6} MB`, grewMb, "MB", "growth of its peak");
    expect(grewMb).toBeLessThan(60);
  });

  it("with invalid UTF-8 and NULs is logged as valid text", async () => {
    await startWorker({ url: database.url, pipelines: NEIGHBOURS, args: ["--slots", "1"] });
    const { id, output } = await flood(
      "printf 'a\\377\\376b\\000c \\303\\244\\n'; printf '\\000\\000\\n'; head -c 16777216 /dev/urandom; echo; echo after",
    );
    expect(output.code).toBe(0);
    const { texts, omitted } = await storedOf(id);
    expect(texts.slice(0, 2)).toEqual(["a\ufffd\ufffdb\u2400c ä", "\u2400\u2400"]);
    // 16 MB of random bytes have a line end of some kind every 128 bytes.
    expect(omitted + texts.length).toBeGreaterThan(16777216 / 128 / 2);
    expect(texts.join("")).toContain("\ufffd");
  });
});

describe("user code that writes too much", { timeout: 180_000 }, () => {
  it("through console.log does not slow down another job, and the worker's log counts the lines omitted", async () => {
    const worker = await startWorker({ url: database.url, pipelines: NEIGHBOURS, args: ["--slots", "2"] });
    const count = FULL ? 1_000_000 : 120_000;
    const text = "console ".repeat(12);
    const { spans, ticks, grewMb } = await beside(worker, { rounds: 2 }, () => chat({ how: "console", count, text }));
    const { ratio50, ratio99 } = compare(`a neighbour's step beside ${count} × console.log`, ticks, spans);
    recordFigure(`keeper beside ${count} × console.log`, grewMb, "MB", "growth of its peak");
    expect(ratio50).toBeLessThan(10);
    expect(ratio99).toBeLessThan(40);
    expect(grewMb).toBeLessThan(100);
    const total = () => {
      const output = worker.lines.filter(({ event }) => event === "runner.output").map(({ line }) => String(line));
      return output.filter((line) => line.startsWith(text)).length + omittedIn(output);
    };
    await waitFor(() => total() === 2 * count, { timeout: 60_000, what: "every line to be there or counted" });
  });

  it("through job.log does not slow down another job, and the job's log counts the lines omitted", async () => {
    const worker = await startWorker({ url: database.url, pipelines: NEIGHBOURS, args: ["--slots", "2"] });
    const count = FULL ? 1_000_000 : 60_000;
    const text = "word ".repeat(FULL ? 20 : 180);
    const jobs: string[] = [];
    const { spans, ticks, grewMb } = await beside(worker, { rounds: 2, words: true }, async () =>
      chat({ how: "log", count, text }, jobs),
    );
    const { ratio50, ratio99 } = compare(`a neighbour's step beside ${count} × job.log`, ticks, spans);
    recordFigure(`keeper beside ${count} × job.log`, grewMb, "MB", "growth of its peak");
    for (const id of jobs) {
      const { texts, omitted, bytes } = await storedOf(id);
      expect(texts.filter((line) => line.startsWith(text)).length + omitted).toBe(count);
      expect(omitted).toBeGreaterThan(0);
      expect(bytes).toBeLessThan(60 * MB);
      expect(texts.at(-1)).toBe(`${text} ${count - 1}`);
      // Other jobs wait for one statement, so its size is bounded, independent of the machine.
      const { rows } = await client.query(
        "select max(bytes)::int as most from (select sum(octet_length(message)) as bytes from stillwake.feed where job_id = $1 group by xmin) one",
        [id],
      );
      expect(rows[0].most).toBeLessThan(300 * 1024);
    }
    expect(ratio50).toBeLessThan(10);
    expect(ratio99).toBeLessThan(40);
    expect(grewMb).toBeLessThan(100);
  });

  it("does not slow down a job that was claimed under the same lease", async () => {
    const gates = ["together-1", "together-2"];
    const input = { how: "log", count: 50_000, text: "word ".repeat(60), observer: observer.url, gates };
    const over = "together-over";
    const chatting = (await stillwake.enqueue("chatting", input)).id;
    const ticking = (await stillwake.enqueue("ticking", { observer: observer.url, gate: over })).id;
    await startWorker({ url: database.url, pipelines: NEIGHBOURS, args: ["--slots", "4"] });
    const ticked = async () => {
      const before = countOf(ticking);
      await waitFor(() => countOf(ticking) >= before + 250, { timeout: 60_000 });
    };
    await ticked();
    const { rows } = await client.query("select distinct lease_id from stillwake.live_jobs where id = any ($1)", [
      [chatting, ticking],
    ]);
    expect(rows).toHaveLength(1);
    for (const gate of gates) {
      observer.openGate(gate);
      await observer.waitForReport(({ step }) => step === `behind ${gate}`);
      await ticked();
    }
    observer.openGate(over);
    const { output } = await stillwake.wait(chatting, { timeout: "20s" });
    await stillwake.wait(ticking, { timeout: "20s" });
    const { spans } = output as { spans: Span[] };
    const { ratio50, ratio99 } = compare("a neighbour's step under the flood's lease", ticksOf(ticking), spans);
    expect(ratio50).toBeLessThan(20);
    expect(ratio99).toBeLessThan(40);
  });

  it("is flushed to the last line, although one statement takes only a part and other flushes interleave", async () => {
    const own = new Database({ url: database.url });
    onTestFinished(() => own.close());
    await stillwake.register(pipeline("buffer", { pool: "buffer" }));
    await stillwake.enqueueMany("buffer", [null, null]);
    const request = { worker: "buffer", pool: "buffer", pipelines: ["buffer"], limit: 2, lease: "15 seconds" };
    const { claimed } = await settleAndClaim(own, [], request);
    const [first, second] = claimed.map(({ job_id, epoch, lease_id }) => ({ job: job_id, epoch, lease: lease_id }));
    const buffer = new WriteBuffer({ database: own, onRefused: () => {}, onDropped: () => {} });
    onTestFinished(() => buffer.close());
    const lines = (count: number) =>
      Array.from({ length: count }, () => ({ level: "info" as const, message: "x".repeat(900), at: 0 }));
    buffer.log(first!, lines(1));
    buffer.log(second!, lines(60));
    const flushes = [buffer.flush(first!.job)];
    // While a statement is in flight, both write more and flush again, the job with few lines first.
    buffer.log(first!, lines(1));
    buffer.log(second!, lines(700));
    flushes.push(buffer.flush(first!.job));
    await buffer.flush(second!.job);
    expect((await storedOf(second!.job)).texts).toHaveLength(760);
    await Promise.all(flushes);
    expect((await storedOf(first!.job)).texts).toHaveLength(2);
  });

  it("logs its failure at the end, after the count of the missing lines", async () => {
    await startWorker({ url: database.url, pipelines: NEIGHBOURS, args: ["--slots", "1"] });
    const text = "word ".repeat(180);
    for (const count of [20_000, 60_000]) {
      const { id } = await stillwake.enqueue("chatting", { how: "log", count, text, fails: "it was too much" });
      expect(await waitForEnd(stillwake, id)).toMatchObject({ state: "failed", attempt: 1 });
      const { texts, omitted } = await storedOf(id);
      expect(omitted).toBeGreaterThan(0);
      expect(texts.at(-1)).toBe("it was too much");
      expect(texts.at(-2)).toBe(`${text} ${count - 1}`);
      expect(texts.length - 1 + omitted).toBe(count);
    }
  });

  it("is limited by the size of the data of lines too", async () => {
    const worker = await startWorker({ url: database.url, pipelines: NEIGHBOURS, args: ["--slots", "1"] });
    const before = peakMb(worker.pid);
    const jobs: string[] = [];
    await chat({ how: "log", count: 4000, text: "with data", data: { filler: "d".repeat(8000) } }, jobs);
    const grewMb = round(peakMb(worker.pid) - before);
    recordFigure("keeper beside 32 MB of data in log lines", grewMb, "MB", "growth of its peak");
    const { texts, omitted, bytes } = await storedOf(jobs[0]!);
    expect(texts.length + omitted).toBe(4000);
    expect(bytes).toBeLessThan(60 * MB);
    expect(grewMb).toBeLessThan(100);
  });
});

/** Runs a shell command in a job and returns the result. */
async function flood(script: string): Promise<{ id: string; output: Span & Record<string, number> }> {
  const input = { observer: observer.url, command: "sh", args: ["-c", script] };
  const { id } = await stillwake.enqueue("flooding", input);
  const { output } = await stillwake.wait(id, { timeout: "60s" });
  return { id, output: output as Span & Record<string, number> };
}

async function chat(input: { how: string; count: number; text: string; data?: unknown }, jobs: string[] = []) {
  const { id } = await stillwake.enqueue("chatting", input);
  jobs.push(id);
  return (await stillwake.wait(id, { timeout: "60s" })).output as Span;
}

/** The stored log of a job. */
async function storedOf(id: string): Promise<{ texts: string[]; markers: number; omitted: number; bytes: number }> {
  const { rows } = await client.query<{ message: string; bytes: number }>(
    "select message, octet_length(message) + coalesce(octet_length(data::text), 0) as bytes from stillwake.feed where job_id = $1 and kind = 'log' order by seq",
    [id],
  );
  const all = rows.map(({ message }) => message);
  const texts = all.filter((text) => !OMITTED.test(text));
  const bytes = rows.reduce((sum, row) => sum + row.bytes, 0);
  return { texts, markers: all.length - texts.length, omitted: omittedIn(all), bytes };
}

const OMITTED = /^… ([\d,]+) lines? omitted/;

function omittedIn(lines: string[]): number {
  return lines.reduce((sum, line) => sum + Number(OMITTED.exec(line)?.[1]?.replaceAll(",", "") ?? 0), 0);
}

interface Span {
  from: number;
  to: number;
}

interface Tick {
  from: number;
  tookMs: number;
}

/** Runs the flood several times beside a job of small steps, some of which run without it before, between and after. */
async function beside(
  worker: WorkerProcess,
  { rounds, words = false }: { rounds: number; words?: boolean },
  flood: () => Promise<Span>,
): Promise<{ spans: Span[]; ticks: Tick[]; grewMb: number }> {
  const gate = `over-${Math.random()}`;
  const { id } = await stillwake.enqueue("ticking", { observer: observer.url, gate, words });
  const alone = async () => {
    const before = countOf(id);
    await waitFor(() => countOf(id) >= before + 250, { timeout: 60_000 });
  };
  await alone();
  const peakBefore = peakMb(worker.pid);
  const spans: Span[] = [];
  for (let n = 0; n < rounds; n++) {
    spans.push(await flood());
    await alone();
  }
  observer.openGate(gate);
  await stillwake.wait(id, { timeout: "20s" });
  return { spans, ticks: ticksOf(id), grewMb: round(peakMb(worker.pid) - peakBefore) };
}

function ticksOf(id: string): Tick[] {
  const last = observer.reportsOf(id).find(({ step }) => step === "over") as unknown as { ticks: [number, number][] };
  return last.ticks.map(([from, tookMs]) => ({ from, tookMs }));
}

function countOf(id: string): number {
  const counts = observer.reportsOf(id).map((report) => Number((report as unknown as { count?: number }).count ?? 0));
  return Math.max(0, ...counts);
}

/** Durations of steps that started during a flood, and of those that did not. */
function compare(name: string, ticks: Tick[], spans: Span[]): { ratio50: number; ratio99: number } {
  const warm = ticks.slice(100);
  const during = warm.filter(({ from }) => spans.some((span) => from > span.from && from < span.to));
  const alone = warm.filter(({ from }) => !spans.some((span) => from > span.from - 100 && from < span.to + 100));
  expect(during.length).toBeGreaterThan(20);
  expect(alone.length).toBeGreaterThan(100);
  const [a, b] = [times(alone), times(during)];
  const note = (n: number) => `n = ${n}`;
  recordFigure(`${name}: alone, p50`, round(a.p50), "ms", note(alone.length));
  recordFigure(`${name}: during, p50`, round(b.p50), "ms", note(during.length));
  recordFigure(`${name}: alone, p99`, round(a.p99), "ms", note(alone.length));
  recordFigure(`${name}: during, p99`, round(b.p99), "ms", note(during.length));
  const result = { ratio50: b.p50 / a.p50, ratio99: b.p99 / a.p99 };
  recordFigure(`${name}: ratio of p50`, round(result.ratio50), "×", "wanted: below 2");
  recordFigure(`${name}: ratio of p99`, round(result.ratio99), "×", "wanted: below 2");
  return result;
}

function times(ticks: Tick[]): { p50: number; p99: number } {
  const sorted = ticks.map(({ tookMs }) => tookMs).sort((a, b) => a - b);
  const at = (fraction: number) => sorted[Math.min(sorted.length - 1, Math.ceil(sorted.length * fraction) - 1)]!;
  return { p50: at(0.5), p99: at(0.99) };
}

/** Peak memory of the process. */
function peakMb(pid: number): number {
  return Number(/VmHWM:\s+(\d+) kB/.exec(fs.readFileSync(`/proc/${pid}/status`, "utf8"))![1]) / 1024;
}
