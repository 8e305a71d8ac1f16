// The image of deploy/Dockerfile, built from this very tree and run for real: both workers drain in it as nobody, with a Postgres, a git server and a GitHub of this
// machine. It takes minutes and root: only with STILLWAKE_FULL=1.
import fs from "node:fs";
import os from "node:os";
import path from "node:path";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { recordFigure } from "../../../../test/support/figures.ts";
import { FULL, round } from "../../../../test/support/processes/aftermath.ts";
import { ROOT } from "../../../../test/support/processes/build.ts";
import { Buildah } from "../../../../test/support/processes/buildah.ts";
import { makeSampleRepository, SAMPLE, SAMPLE_USERS } from "../../src/demo/sample.ts";
import { HOME, type Stage, stage } from "../support/leaderboards.ts";

const MINUTES = 60_000;
const why = !FULL ? "only with STILLWAKE_FULL=1" : process.getuid?.() !== 0 ? "only as root" : undefined;

describe.skipIf(why)(`the image${why ? ` (${why})` : ""}`, { timeout: 5 * MINUTES }, async () => {
  const folder = why ? "" : fs.realpathSync(fs.mkdtempSync(path.join(os.tmpdir(), "stillwake-leaderboard-image-")));
  const place = why ? ({} as Stage) : await stage();
  let buildah: Buildah;
  let container = "";

  beforeAll(async () => {
    await makeSampleRepository({ root: place.root });
    await place.github({ users: SAMPLE_USERS, search: { limit: 1000, windowMs: 60_000 } });
    buildah = new Buildah(folder);
    const began = performance.now();
    const dockerfile = path.join(HOME, "deploy/Dockerfile");
    await buildah.standIn(dockerfile);
    await buildah.build("leaderboard", dockerfile, ROOT);
    const seconds = round((performance.now() - began) / 1000);
    recordFigure("leaderboard: building the image", seconds, "s", "with a stand-in base");
    container = (await buildah.call("from", "--pull-never", "leaderboard")).trim();
  }, 15 * MINUTES);

  afterAll(async () => {
    await buildah?.call("rm", "--all").catch(() => {});
    fs.rmSync(folder, { recursive: true, force: true, maxRetries: 5 });
  });

  it("is nobody's, and keeps its code from its jobs", async () => {
    const { OCIv1 } = JSON.parse(await buildah.call("inspect", container));
    expect(OCIv1.config).toMatchObject({ User: "1000:1000", StopSignal: "SIGTERM" });
    for (const file of ["/app/mine", "/app/pipelines/leaderboard/dist/mine"]) {
      expect(await inside(["touch", file])).toMatchObject({ code: 1 });
    }
    const megabytes = Number((await inside(["du", "-sm", "/app"])).stdout.split("\t")[0]);
    recordFigure("leaderboard: /app in the image", megabytes, "MB");
    expect(megabytes).toBeLessThan(60);
  });

  it("drains both pools with the words of the two jobs, until the board is complete", async () => {
    // As at a deploy: the pipelines become known.
    for (const name of ["commits", "users"] as const) expect(await drain(name)).toMatchObject({ code: 0 });
    const { id } = await place.ask(SAMPLE.repository);
    const commits = await drain("commits");
    const users = await drain("users");
    const said = [commits, users].map(({ stdout, stderr }) => stdout + stderr).join("\n");
    expect(await place.history(id), said).toEqual(["pending", "commits_processing", "users_processing", "completed"]);
    const { rows } = await place.pool.query(
      "select commits::integer, authors from leaderboard.repositories where id = $1",
      [id],
    );
    expect(rows[0]).toEqual({ commits: 1502, authors: 60 });
  });

  /** The words of deploy/commits.job.yaml and users.job.yaml. */
  function drain(name: "commits" | "users") {
    const words = fs.readFileSync(path.join(HOME, `deploy/${name}.job.yaml`), "utf8");
    const args = JSON.parse(/^ *args: (\[.*\])$/m.exec(words)![1]!) as string[];
    return buildah.start(container, ["node", ...args], {
      STILLWAKE_DATABASE_URL: place.url,
      STILLWAKE_POOL: name,
      ...place.env,
    }).ended;
  }

  function inside(program: string[]) {
    return buildah.start(container, program).ended;
  }
});
