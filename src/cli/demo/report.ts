// demo-report: a pipeline of about a minute with steps, a child process, an optional step that fails, a long list with
// progress, a log line with data and an artifact. The harbour and its tides are made up.
import fs from "node:fs/promises";
import path from "node:path";
import { setTimeout as delay } from "node:timers/promises";
import { fileURLToPath } from "node:url";
import { z } from "zod";
import { pipeline } from "../../index.ts";
import { implement } from "../../worker/index.ts";
import { renderReport, type Summary } from "./tide-page.ts";
import { formatHour, formatMetres, outlierCm, type Reading } from "./tides.ts";

export const report = pipeline("demo-report", {
  input: z.object({
    harbour: z.string().min(1).max(60).default("Stillwater").meta({
      title: "Harbour",
      description: "The harbour of the report. Any name is accepted.",
    }),
    readings: z.int().min(24).max(2400).default(400).meta({
      title: "Readings",
      description: "The number of hourly readings to check.",
    }),
    seconds: z.number().min(2).max(600).default(60).meta({
      title: "Seconds",
      description: "Approximate duration.",
    }),
    weather: z.boolean().default(true).meta({
      title: "Weather",
      description: "Queries an unreachable weather service: an optional step fails, and the job completes without it.",
    }),
  }),
  // In `stillwake dev` this pool has machines: local processes that start when there is work.
  pool: "reports",
  // Users kill its runner to watch it resume.
  retry: { attempts: 10, crashes: 10 },
});

const GAUGE = fileURLToPath(new URL("gauge.js", import.meta.url));
/** Number of checkpoints while the readings are checked. */
const BATCHES = 50;

export default implement(report, async (job, { harbour, readings: count, seconds, weather }) => {
  /** Waits a share of the total duration, or until the stop signal. */
  const wait = (share: number, signal = job.signal) => delay(seconds * 1000 * share, undefined, { signal });

  await job.step(
    "open",
    {
      start: `Opening the logbook of ${harbour} harbour...`,
      end: `Opened the logbook with ${count} readings`,
    },
    (step) => wait(0.05, step.signal),
  );

  const readings = await job.step<Reading[]>(
    "gauge",
    {
      start: "Reading the tide gauge. It is a child process; these lines are its output...",
      end: (all) => `Read ${all.length} readings`,
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
    ? await job.optional<string>(
        "weather",
        { start: "Querying the weather service for a forecast..." },
        async (step) => {
          await wait(0.07, step.signal);
          throw new Error("The weather service cannot be reached. The report has no forecast");
        },
      )
    : "not requested";

  await job.each(
    "checking",
    readings,
    {
      batch: Math.ceil(readings.length / BATCHES),
      start: "Comparing every reading with the tide table. The position in the list is saved after each batch...",
      end: ({ done }) => `Checked all ${done} readings`,
    },
    async (batch, handle) => {
      await wait((0.58 * batch.length) / readings.length, handle.signal);
      for (const reading of batch) {
        const deviation = outlierCm(reading);
        if (deviation === undefined) continue;
        handle.log.info(`The reading of ${formatHour(reading.hour)} deviates by ${deviation} cm: the float was stuck`, {
          ...reading,
          off_cm: deviation,
        });
      }
    },
  );

  const summary = await job.step<Summary>(
    "summary",
    { start: "Computing the summary...", end: ({ outliers }) => `Found ${outliers.length} outliers` },
    async (step) => {
      await wait(0.06, step.signal);
      return summarize(readings);
    },
  );
  const { highest, lowest, mean, outliers } = summary;
  job.log.success(`Highest water: ${formatMetres(highest.metres)}, ${formatHour(highest.hour)}`, { highest, lowest });

  const page = await job.artifact("tide-report.html", () => renderReport(harbour, readings, summary, forecast));
  job.log.success(`The report is ready: ${page.name}`);
  return {
    harbour,
    readings: readings.length,
    highest: highest.metres,
    lowest: lowest.metres,
    mean,
    outliers: outliers.length,
    report: page.name,
  };
});

function summarize(readings: readonly Reading[]): Summary {
  const sorted = readings.toSorted((a, b) => a.metres - b.metres);
  const total = readings.reduce((sum, { metres }) => sum + metres, 0);
  return {
    readings: readings.length,
    highest: sorted.at(-1)!,
    lowest: sorted[0]!,
    mean: Math.round((total / readings.length) * 100) / 100,
    outliers: readings.flatMap((reading) => {
      const centimetres = outlierCm(reading);
      return centimetres === undefined ? [] : [{ hour: reading.hour, centimetres }];
    }),
  };
}
