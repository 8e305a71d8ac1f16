// Kills the runner or the worker by SIGKILL in every stage, chosen by a seed. Each clip has one final file with the hash of an
// undisturbed run, no finished stage is done again, no process stays, and the scratch directory is empty.
import { createHash } from "node:crypto";
import fs from "node:fs";
import path from "node:path";
import { buffer } from "node:stream/consumers";
import { waitFor } from "stillwake/testing";
import { expect, it } from "vitest";
import { recordFigure } from "../../../test/support/figures.ts";
import { FULL, processesIn } from "../../../test/support/processes/fault-checks.ts";
import { startWorker, type WorkerProcess } from "../../../test/support/processes/workers.ts";
import { PIPELINE, setUpClips, withoutBackoff } from "./support/clips.ts";
import { serveMedia } from "./support/media-server.ts";
import { makeVideo, programsForTests } from "./support/programs.ts";
import { makeWrappers } from "./support/wrappers.ts";

const found = await programsForTests();
const setup = await setUpClips({ maxAttempts: 20 });
const media = await serveMedia();
const { pool, stillwake } = setup;
const SEED = Number(process.env.SEED ?? Math.floor(Math.random() * 2 ** 31));
const RUNS = FULL ? 100 : 6;
const STAGES = ["resolve", "clip", "upload", "asr", "finalize", "ready"] as const;

/** When: before or after the checkpoint of a stage, or some milliseconds after the stage began. What: one process, or all. */
interface Death {
  stage: (typeof STAGES)[number];
  at: "before" | "after" | number;
}

/** Mulberry32: the same numbers for the same seed. */
function randomFrom(seed: number): () => number {
  let state = seed;
  return () => {
    state = (state + 0x6d2b79f5) | 0;
    let t = Math.imul(state ^ (state >>> 15), 1 | state);
    t = (t + Math.imul(t ^ (t >>> 7), 61 | t)) ^ t;
    return ((t ^ (t >>> 14)) >>> 0) / 2 ** 32;
  };
}

it.skipIf(typeof found === "string")(
  `${RUNS} clips are made once each, whatever is killed (${typeof found === "string" ? found : "with ffmpeg"})`,
  { timeout: RUNS * 60_000 },
  async () => {
    if (typeof found === "string") return;
    const chance = randomFrom(SEED);
    await withoutBackoff(pool);
    const wrappers = makeWrappers(path.join(setup.folder, "bin"), found);
    const video = makeVideo(found, path.join(setup.folder, "a.mp4"), { seconds: 5, size: "640x360" });
    const scratch = path.join(setup.folder, "scratch");
    let worker: WorkerProcess;
    const start = async (more: Record<string, string> = {}) => {
      worker = await startWorker({
        url: setup.url,
        pipelines: PIPELINE,
        env: { ...setup.env, CLIP_TOOL_PATH: wrappers.folder, ...more },
        args: ["--pool", "clip", "--slots", "1", "--lease", "2s", "--store", setup.store, "--scratch", scratch],
      });
    };
    const kill = (pid: number) => {
      try {
        process.kill(pid, "SIGKILL");
      } catch {
        // It has already exited.
      }
    };
    const end = async () => {
      const runners = worker.runners();
      worker.signal("SIGKILL");
      if (chance() < 0.5) for (const pid of runners) kill(pid);
      await worker.exited;
    };
    const request = async (name: string) => {
      media.files.set(`/${name}.mp4`, { body: video });
      const source = { url: `${media.url}/${name}.mp4` };
      return (await setup.request({ source, start: 1.3, end: 3.3, captions: "sidecar" })).id;
    };
    const reached = (id: string, stage: string) =>
      waitFor(
        async () =>
          (await pool.query("select from clip.clips where id = $1 and (stage = $2 or state = 'ready')", [id, stage]))
            .rowCount,
        { timeout: 60_000, interval: 2, what: `${stage} of ${id}` },
      );

    await start();
    const reference = (await setup.waitForEnd(await request("reference"))).clip.result!.sha256;
    let kills = 0;
    for (let run = 0; run < RUNS; run++) {
      const stage = STAGES[run % STAGES.length]!;
      const kind = chance();
      const death: Death = { stage, at: kind < 0.3 ? "before" : kind < 0.6 ? "after" : Math.floor(chance() * 300) };
      const label = `seed ${SEED}, run ${run}: ${JSON.stringify(death)}`;
      const calls = wrappers.calls().length;
      if (typeof death.at === "string") {
        await end();
        await start({ STILLWAKE_CRASH: `${death.at}:${stage}` });
      }
      const id = await request(`run-${run}`);
      if (typeof death.at === "number") {
        await reached(id, stage === "ready" ? "finalize" : stage);
        const { at } = death;
        await new Promise((resolve) => setTimeout(resolve, at));
        const whole = chance() < 0.5;
        if (whole) await end();
        else for (const pid of worker!.runners()) kill(pid);
        if (whole) await start();
      }
      kills += 1;
      const { clip, lines } = await setup.waitForEnd(id);
      expect(clip.state, `${label}\n${lines.join("\n")}`).toBe("ready");
      const attempts = await stillwake.attempts(id);
      const steps = await pool.query("select step, epoch from stillwake.checkpoints where job_id = $1", [id]);
      // Which stages were done when the last attempt began.
      const doneBefore = steps.rows.filter(({ epoch }) => Number(epoch) < attempts.length).map(({ step }) => step);

      const made = wrappers.calls().slice(calls);
      const cuts = made.filter((call) => call === "clip").length;
      const downloads = media.requests.filter((line) => line.startsWith(`/run-${run}.mp4`)).length;
      // A stage is done at most once per attempt in which it was not done before.
      const notDoneIn = (step: string) => Number(steps.rows.find((row) => row.step === step)?.epoch ?? 1);
      expect(downloads, label).toBeLessThanOrEqual(notDoneIn("resolve"));
      expect(cuts, label).toBeLessThanOrEqual(notDoneIn("clip"));
      if (death.at === "before" && stage === "clip") expect(cuts, label).toBe(1);
      if (doneBefore.includes("clip")) expect(cuts, label).toBe(1);
      if (doneBefore.includes("resolve")) expect(downloads, label).toBe(1);

      const files = (await stillwake.artifacts(id)).filter(({ name }) => name === "clip.mp4");
      expect(files, label).toHaveLength(1);
      const content = await buffer(await stillwake.download(id, "clip.mp4"));
      expect(createHash("sha256").update(content).digest("hex"), label).toBe(reference);
      expect(clip.result!.sha256, label).toBe(reference);
      const isEmpty = () => fs.readdirSync(path.join(scratch, "jobs")).length === 0;
      await waitFor(isEmpty, { timeout: 20_000, what: `${label}: an empty scratch directory` });
      const ended = () => processesIn(path.join(scratch, "jobs")).length === 0;
      await waitFor(ended, { timeout: 20_000, what: `${label}: no stray process` });
      expect(fs.existsSync(path.join(setup.folder, "sources/downloads", id)), label).toBe(false);
      if (typeof death.at === "string") {
        await end();
        await start();
      }
    }
    recordFigure("clip: clips made once each under kills", RUNS, "", `${kills} kills, seed ${SEED}`);
  },
);
