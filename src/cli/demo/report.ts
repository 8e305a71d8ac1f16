// demo-report, a pipeline to look at: about a minute with steps, a program of its own, an optional step that fails, a long list with progress, a
// line with data and a file at the end. The harbour is invented; everything the engine does with it is what it does with your work.
import fs from "node:fs/promises";
import path from "node:path";
import { setTimeout as delay } from "node:timers/promises";
import { fileURLToPath } from "node:url";
import { z } from "zod";
import { pipeline } from "../../index.ts";
import { implement } from "../../worker/index.ts";
import { type Summary, tidePage } from "./tide-page.ts";
import { inMetres, moment, type Reading, strayBy } from "./tides.ts";

export const report = pipeline("demo-report", {
  input: z.object({
    harbour: z.string().min(1).max(60).default("Stillwater").meta({
      title: "Harbour",
      description: "Whose tides the report is about. Any name will do.",
    }),
    readings: z.int().min(24).max(2400).default(400).meta({
      title: "Readings",
      description: "How many hours of the tide gauge are read and checked.",
    }),
    seconds: z.number().min(2).max(600).default(60).meta({
      title: "Seconds",
      description: "How long it takes, about.",
    }),
    weather: z.boolean().default(true).meta({
      title: "With the weather",
      description:
        "Asks a weather service that is out of reach: an optional step fails, and the job goes on without it.",
    }),
  }),
  // With `stillwake dev` this pool has machines, which are processes: they come when there is work.
  pool: "reports",
  // People kill its runner to see what happens, more than once.
  retry: { attempts: 10, crashes: 10 },
});

const GAUGE = fileURLToPath(new URL("gauge.js", import.meta.url));
/** Places that are saved while the readings are checked. */
const BATCHES = 50;

export default implement(report, async (job, { harbour, readings: count, seconds, weather }) => {
  /** A part of the whole time; being told to stop ends it. */
  const part = (share: number, signal = job.signal) => delay(seconds * 1000 * share, undefined, { signal });

  await job.step(
    "opening",
    {
      start: `Opening the logbook of ${harbour} harbour...`,
      end: `The logbook is open. ${count} readings are expected`,
    },
    (step) => part(0.05, step.signal),
  );

  const readings = await job.step<Reading[]>(
    "gauge",
    {
      start: "Reading the tide gauge. It is a program of its own, and these lines are what it prints...",
      end: (all) => `The gauge gave ${all.length} readings`,
    },
    async (step) => {
      const ms = String(Math.round(seconds * 1000 * 0.22));
      await step.exec(process.execPath, [GAUGE, harbour, String(count), ms], {
        on: { exit: "The tide gauge could not be read" },
      });
      const rows = await fs.readFile(path.join(await step.scratch(), "readings.csv"), "utf8");
      return rows
        .trim()
        .split("\n")
        .map((row) => row.split(",").map(Number))
        .map(([hour = 0, metres = 0]) => ({ hour, metres }));
    },
  );

  const forecast = weather
    ? await job.optional<string>("weather", { start: "Asking the weather service for a forecast..." }, async (step) => {
        await part(0.07, step.signal);
        throw new Error("The weather service is out of reach. The report goes without a forecast");
      })
    : "not asked for";

  await job.each(
    "checking",
    readings,
    {
      batch: Math.ceil(readings.length / BATCHES),
      start: "Checking every reading against the tide table. The place in the list is saved as it goes...",
      end: ({ done }) => `All ${done} readings are checked`,
    },
    async (batch, handle) => {
      await part((0.58 * batch.length) / readings.length, handle.signal);
      for (const reading of batch) {
        const by = strayBy(reading);
        if (by === undefined) continue;
        // Of the job: the lines of a batch would name the batch as their step.
        job.log.info(`The reading of ${moment(reading.hour)} is ${by} cm off the tide table: the float had stuck`, {
          ...reading,
          off_cm: by,
        });
      }
    },
  );

  const summary = await job.step<Summary>(
    "summing-up",
    { start: "Summing up...", end: ({ strays }) => `Summed up; ${strays.length} readings are marked as strays` },
    async (step) => {
      await part(0.06, step.signal);
      return summaryOf(readings);
    },
  );
  const { highest, lowest, mean, strays } = summary;
  job.log.success(`Highest water: ${inMetres(highest.metres)}, ${moment(highest.hour)}`, { highest, lowest });

  const page = await job.artifact("tide-report.html", () => tidePage(harbour, readings, summary, forecast));
  job.log.success(`The report is ready: ${page.name}`);
  return {
    harbour,
    readings: readings.length,
    highest: highest.metres,
    lowest: lowest.metres,
    mean,
    strays: strays.length,
    report: page.name,
  };
});

function summaryOf(readings: readonly Reading[]): Summary {
  const sorted = readings.toSorted((a, b) => a.metres - b.metres);
  const total = readings.reduce((sum, { metres }) => sum + metres, 0);
  return {
    readings: readings.length,
    highest: sorted.at(-1)!,
    lowest: sorted[0]!,
    mean: Math.round((total / readings.length) * 100) / 100,
    strays: readings.flatMap((one) => {
      const centimetres = strayBy(one);
      return centimetres === undefined ? [] : [{ hour: one.hour, centimetres }];
    }),
  };
}
