// Builds the image "leaderboard" from this tree and runs it: both workers drain unprivileged, with a local Postgres, git
// server and fake GitHub. It takes minutes and needs root: only with STILLWAKE_FULL=1.
import fs from "node:fs";
import os from "node:os";
import path from "node:path";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { recordFigure } from "../../../../test/support/figures.ts";
import { ROOT } from "../../../../test/support/processes/build.ts";
import { Buildah } from "../../../../test/support/processes/buildah.ts";
import { FULL, round } from "../../../../test/support/processes/fault-checks.ts";
import { DOCKERFILE } from "../../../kit/test/support/deploy.ts";
import { makeSampleRepository, SAMPLE, SAMPLE_USERS } from "../../src/demo/sample.ts";
import { HOME, type LeaderboardSetup, setUpLeaderboards } from "../support/leaderboards.ts";

const MINUTES = 60_000;
const why = !FULL ? "only with STILLWAKE_FULL=1" : process.getuid?.() !== 0 ? "only as root" : undefined;

describe.skipIf(why)(`the image${why ? ` (${why})` : ""}`, { timeout: 5 * MINUTES }, async () => {
  const folder = why ? "" : fs.realpathSync(fs.mkdtempSync(path.join(os.tmpdir(), "stillwake-leaderboard-image-")));
  const setup = why ? ({} as LeaderboardSetup) : await setUpLeaderboards();
  let buildah: Buildah;
  let container = "";

  beforeAll(async () => {
    await makeSampleRepository({ root: setup.root });
    await setup.serveGitHub({ users: SAMPLE_USERS, search: { limit: 1000, windowMs: 60_000 } });
    buildah = new Buildah(folder);
    const began = performance.now();
    await buildah.createBaseImage(DOCKERFILE);
    await buildah.build("leaderboard", DOCKERFILE, ROOT, "leaderboard");
    const seconds = round((performance.now() - began) / 1000);
    recordFigure("leaderboard: building the image", seconds, "s", "with a stand-in base");
    container = (await buildah.call("from", "--pull-never", "leaderboard")).trim();
  }, 15 * MINUTES);

  afterAll(async () => {
    await buildah?.call("rm", "--all").catch(() => {});
    fs.rmSync(folder, { recursive: true, force: true, maxRetries: 5 });
  });

  it("runs unprivileged and cannot change its code", async () => {
    const { OCIv1 } = JSON.parse(await buildah.call("inspect", container));
    expect(OCIv1.config).toMatchObject({ User: "1000:1000", StopSignal: "SIGTERM" });
    for (const file of ["/app/mine", "/app/pipelines/leaderboard/dist/mine"]) {
      expect(await inside(["touch", file])).toMatchObject({ code: 1 });
    }
    const megabytes = Number((await inside(["du", "-sm", "/app"])).stdout.split("\t")[0]);
    recordFigure("leaderboard: /app in the image", megabytes, "MB");
    expect(megabytes).toBeLessThan(60);
  });

  it("drains both pools with the arguments of the two jobs, until the board is complete", async () => {
    // Registers the pipelines, as a deployment does.
    for (const name of ["commits", "users"] as const) expect(await drain(name)).toMatchObject({ code: 0 });
    const { id } = await setup.request(SAMPLE.repository);
    const commits = await drain("commits");
    const users = await drain("users");
    const output = [commits, users].map(({ stdout, stderr }) => stdout + stderr).join("\n");
    expect(await setup.history(id), output).toEqual(["pending", "commits_processing", "users_processing", "completed"]);
    const { rows } = await setup.pool.query(
      "select commits::integer, authors from leaderboard.repositories where id = $1",
      [id],
    );
    expect(rows[0]).toEqual({ commits: 1502, authors: 60 });
  });

  /** Runs the arguments of deploy/<name>.job.yaml. */
  function drain(name: "commits" | "users") {
    const job = fs.readFileSync(path.join(HOME, `deploy/${name}.job.yaml`), "utf8");
    const args = JSON.parse(/^ *args: (\[.*\])$/m.exec(job)![1]!) as string[];
    return buildah.start(container, ["node", ...args], {
      STILLWAKE_DATABASE_URL: setup.url,
      STILLWAKE_POOL: name,
      ...setup.env,
    }).ended;
  }

  function inside(program: string[]) {
    return buildah.start(container, program).ended;
  }
});
