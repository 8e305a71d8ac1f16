// The pipeline: resolve, clip, upload, asr, finalize. The source is in the store of sources and the clip is an artifact when their
// stages have ended, so that an attempt on another machine does no finished stage again.
import fs from "node:fs/promises";
import path from "node:path";
import { setTimeout as delay } from "node:timers/promises";
import { applicationPool, inTransaction, isDatabaseError } from "@stillwake/kit/database";
import { explain, logJobFailure, logStepFailure } from "@stillwake/kit/failures";
import type pg from "pg";
import { implement, type JobContext, type StepHandle, type StepOptions } from "stillwake/worker";
import { clip, type Output } from "./contract.ts";
import { isRetryable, toClipError } from "./failures.ts";
import { findPrograms } from "./media/programs.ts";
import type { Stage } from "./model.ts";
import { readSettings } from "./settings.ts";
import { transcribeClip } from "./stages/captions.ts";
import { type Cut, cutClip, cutFormat, formatSeconds } from "./stages/cut.ts";
import { ARTIFACTS, finalize } from "./stages/finalize.ts";
import { Source } from "./stages/sources.ts";

export default implement(
  clip,
  (job, input) =>
    logJobFailure(job, "The clip", async (): Promise<Output> => {
      const settings = readSettings();
      const { limits } = settings;
      const pool = applicationPool(settings.databaseUrl, "CLIP_DATABASE_URL");
      const programs = await findPrograms(settings);
      const source = new Source(job.id, input.source, settings, programs);
      const silence = `${limits.silenceMs * 2}ms` as const;
      const begin = (stage: Stage) =>
        pool.query("select clip.begin_stage($1, $2)", [job.id, stage]).catch((error) => {
          job.log.warning("Could not update the stage of the clip - its page may be out of date", {
            error: String(error),
          });
        });

      await begin("resolve");
      const resolved = await inStage(
        job,
        "resolve",
        {
          start: "Fetching the video...",
          end: ({ media }) => `Video ready - ${formatSeconds(media.duration)} s, ${media.width}x${media.height}`,
          timeout: `${limits.resolveMs}ms`,
          silence,
        },
        (step: StepHandle) => source.resolve(step),
      );

      const name = ARTIFACTS.cut(cutFormat(input));
      const cutting = (step: StepHandle) => async () => {
        const { file, media } = await source.open(step, resolved);
        const options = { id: job.id, input, source: file, media, programs, limits };
        return cutClip(step, options);
      };
      await begin("clip");
      const cut = await inStage(
        job,
        "clip",
        {
          start: "Cutting the clip...",
          end: ({ media, encoded }) =>
            `Clip cut - ${formatSeconds(media.duration)} s, ${encoded ? "encoded" : "copied without encoding"}`,
          // Cutting, and then storing.
          timeout: `${limits.clipMs + limits.uploadMs}ms`,
          silence,
        },
        (step: StepHandle) => storeOnce(job, step, name, cutting(step)),
      );

      await begin("upload");
      const uploaded = await inStage(
        job,
        "upload",
        {
          start: "Checking the uploaded clip...",
          end: ({ size }) => `Clip uploaded - ${size} bytes`,
          timeout: `${limits.clipMs + limits.uploadMs}ms`,
          silence,
        },
        // Asks the store for the size and hash. Only if the file is gone it is cut again.
        async (step: StepHandle) => {
          const { size, sha256 } = await job.artifact(name, async () => ({ file: (await cutting(step)()).file }));
          return { size, sha256 };
        },
      );

      const warnings: string[] = [];
      if (cut.shortened)
        warnings.push(
          `The video ends at ${formatSeconds(resolved.media.duration)} s: the clip is shorter than requested`,
        );
      const hasAudio = cut.media.audioCodec !== null;
      let transcript: Awaited<ReturnType<typeof transcribeClip>> | undefined;
      if (input.captions !== "none") {
        await begin("asr");
        transcript = await job.optional(
          "asr",
          {
            start: "Writing the captions...",
            end: ({ texts }) => (texts ? "Captions written" : "The clip has no captions"),
            timeout: `${limits.asrMs}ms`,
            silence,
          },
          async (step: StepHandle) => {
            const file = await job.artifactFile(name);
            const relative = file.slice((await step.scratch()).length + 1);
            return transcribeClip(step, { file: relative, hasAudio }, programs);
          },
        );
        const missing = transcript ? transcript.missing : "No captions: speech recognition failed - see the log";
        if (missing !== null) warnings.push(missing);
      }

      await begin("finalize");
      const finished = await inStage(
        job,
        "finalize",
        { start: "Finishing the clip...", end: "Clip finished", timeout: `${limits.finalizeMs}ms`, silence },
        (step: StepHandle) =>
          finalize(job, step, {
            id: job.id,
            input,
            cut: { ...uploaded, media: cut.media },
            transcript,
            programs,
            limits,
          }),
      );
      const { file, size, sha256, media, captions } = finished;
      const { duration, width, height } = media;
      const result: Output = { file, duration, width, height, size, sha256, hasAudio, encoded: cut.encoded, captions };
      // Its errors are those of a stage, from the connection to COMMIT.
      const transaction = (run: (tx: pg.PoolClient) => Promise<unknown>) =>
        inTransaction(pool, run).catch((error) => {
          throw isDatabaseError(error) ? toClipError(error, "finalize") : error;
        });
      await job.tx("ready", { retry: { attempts: 3 } }, transaction, async (tx: pg.PoolClient) => {
        await tx.query("select clip.complete($1, $2, $3)", [job.id, JSON.stringify(result), warnings]);
      });
      await source.release().catch((error) => {
        job.log.warning("The downloaded source was not deleted - it will be later", { error: String(error) });
      });
      job.log.success("Clip ready", { bytes: size });
      return result;
    }),
  {
    explain,
    classify: (error) => {
      const { code = "" } = (error ?? {}) as { code?: string };
      return isRetryable(code) ? "retry" : undefined;
    },
  },
);

type CutInfo = Omit<Cut, "file">;

/** A stage: a step whose failures have a code and a sentence. */
async function inStage<Result>(
  job: JobContext,
  stage: Stage,
  options: StepOptions<NoInfer<Result>>,
  work: (step: StepHandle) => Promise<Result>,
): Promise<Result> {
  try {
    return await job.step(stage, options, (step: StepHandle) =>
      logStepFailure(step, () =>
        work(step).catch((error) => {
          throw toClipError(step.signal.aborted ? (step.signal.reason ?? error) : error, stage);
        }),
      ),
    );
  } catch (error) {
    throw toClipError(error, stage);
  }
}

const STORE_TRIES = 3;

/**
 * Cuts the clip and stores it as an artifact: before any work the store is asked whether it has the file. If the store fails, the
 * finished file is offered again without cutting it again. What is known about the clip is stored before the clip itself.
 */
async function storeOnce(job: JobContext, step: StepHandle, name: string, cut: () => Promise<Cut>): Promise<CutInfo> {
  let made: Cut | undefined;
  for (let tries = 1; ; tries++) {
    try {
      const { existing } = await job.artifact(name, async () => {
        made ??= await cut();
        const { file, media, encoded, shortened } = made;
        await job.artifact(ARTIFACTS.info, () => JSON.stringify({ media, encoded, shortened }));
        step.progress(1, "Uploading the clip");
        // An earlier try may have moved the file to where artifacts are.
        const isThere = await fs.stat(path.join(await step.scratch(), file)).catch(() => undefined);
        return { file: isThere ? file : `artifacts/${name}` };
      });
      if (existing) step.log.info("The clip is uploaded already - it is not cut again");
      return JSON.parse(await fs.readFile(await job.artifactFile(ARTIFACTS.info), "utf8")) as CutInfo;
    } catch (error) {
      const { code } = toClipError(error, "upload") as { code?: string };
      if (!made || code !== "STORAGE_UPLOAD_FAILED" || tries >= STORE_TRIES || step.signal.aborted) throw error;
      step.log.warning(`The store did not accept the clip - trying again (${tries} of ${STORE_TRIES})`);
      await delay(500 * 2 ** tries, undefined, { signal: step.signal });
    }
  }
}
