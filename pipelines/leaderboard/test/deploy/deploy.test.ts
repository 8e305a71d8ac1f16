// The files of deploy/: the Cloud Run jobs, the rights of the logins, and no secrets. schedulers.test.ts runs
// schedulers.sh, image.test.ts builds and runs the image.
import fs from "node:fs";
import os from "node:os";
import path from "node:path";
import pg from "pg";
import { describe, expect, it } from "vitest";
import { freshDatabase } from "../../../../test/support/database/database.ts";
import { runCli } from "../../../../test/support/processes/cli.ts";
import { checkScript, collectVariables, hasShellcheck } from "../../../../test/support/providers/deploy-files.ts";
import {
  officialIsAtHand,
  readCloudRunJob,
  wrongInCloudRunJob,
} from "../../../../test/support/providers/schemas/cloud-run-job.ts";
import { checkLogins, commandOf, stageOf } from "../../../kit/test/support/deploy.ts";
import { migrate } from "../../src/app.ts";
import { commits, users } from "../../src/contract.ts";
import { readSettings } from "../../src/settings.ts";

const HOME = path.resolve(import.meta.dirname, "../..");
const DEPLOY = path.join(HOME, "deploy");
const text = (name: string) => fs.readFileSync(path.join(DEPLOY, name), "utf8");

/** With the placeholders replaced, as schedulers.sh does. */
const filled = (name: string) =>
  readCloudRunJob(text(name).replace("PROJECT.iam", "acme-prod.iam").replace("image: IMAGE", "image: acme/board:v1"));
const jobOf = (name: string) => {
  const { spec } = filled(`${name}.job.yaml`).spec.template.spec.template;
  const [{ args, env, resources }] = spec.containers;
  const values = Object.fromEntries(env.flatMap((entry) => ("value" in entry ? [[entry.name, entry.value]] : [])));
  const secrets = Object.fromEntries(
    env.flatMap((entry) => ("value" in entry ? [] : [[entry.name, entry.valueFrom.secretKeyRef]])),
  );
  return { spec, args, values, secrets, limits: resources.limits };
};

describe("the jobs", () => {
  it.each(["commits.job.yaml", "users.job.yaml"])(
    `%s has only fields of Cloud Run${officialIsAtHand ? ", and converted to v2 it matches Google's schema" : " (Google's schema is not available)"}`,
    (name) => {
      expect(wrongInCloudRunJob(filled(name))).toEqual([]);
      expect(filled(name).metadata.name).toBe(`leaderboard-${name.split(".")[0]}`);
    },
  );

  it("reports invalid fields of a job", () => {
    const job = filled("commits.job.yaml");
    job.spec.template.spec.template.spec.maxRetries = 11;
    job.spec.template.spec.template.spec.containers[0].resources.limits.cpu = "3";
    expect(wrongInCloudRunJob(job)).toEqual([
      expect.stringMatching(/containers\/0\/resources\/limits\/cpu must be equal to one of/),
      expect.stringMatching(/maxRetries must be <= 10/),
    ]);
    expect(() => readCloudRunJob(text("users.job.yaml").replace("maxRetries:", "maxRetry:"))).toThrow(/maxRetry/);
  });

  it.each([
    ["commits", commits],
    ["users", users],
  ] as const)(
    "%s drains its pool with its pipeline and its account, without platform retries, and has more time than a job",
    (name, pipeline) => {
      const { spec, args, values } = jobOf(name);
      const module = `pipelines/leaderboard/dist/${name}/pipeline.js`;
      expect(args).toEqual(["dist/cli/index.js", "worker", "--pipelines", module, "--drain"]);
      expect(values.STILLWAKE_POOL).toBe(pipeline.options.pool);
      expect(spec.serviceAccountName).toBe(`leaderboard-${name}@acme-prod.iam.gserviceaccount.com`);
      expect(spec.maxRetries).toBe(0);
      const [, hours] = /^(\d+)h$/.exec(String(pipeline.options.timeout)) ?? [];
      expect(Number(spec.timeoutSeconds)).toBeGreaterThan(Number(hours) * 3600);
    },
  );

  it("only the users job has the GitHub token; the logins of worker and pipeline code are separate secrets", () => {
    const logins = {
      STILLWAKE_DATABASE_URL: { name: "leaderboard-worker-database-url", key: "latest" },
      LEADERBOARD_DATABASE_URL: { name: "leaderboard-code-database-url", key: "latest" },
    };
    expect(jobOf("commits").secrets).toEqual(logins);
    expect(jobOf("users").secrets).toEqual({
      ...logins,
      LEADERBOARD_GITHUB_TOKEN: { name: "leaderboard-github-token", key: "latest" },
    });
  });

  it("the code reads every variable that a job or the image sets", () => {
    const known = collectVariables(readSettings);
    const [, set = ""] = /^ENV NODE_ENV=production (.*)$/m.exec(stageOf("leaderboard")) ?? [];
    const named = [
      ...["commits", "users"].flatMap((name) => Object.keys({ ...jobOf(name).values, ...jobOf(name).secrets })),
      ...[...set.matchAll(/\b([A-Z_]+)=/g)].map(([, name]) => name!),
    ];
    expect(named).toEqual(expect.arrayContaining(["LEADERBOARD_CLONE_GB", "STILLWAKE_DIR"]));
    expect(named.filter((name) => !known.has(name))).toEqual([]);
  });

  it("a clone fits into memory, because files use memory on Cloud Run, and there is no cache", () => {
    const { values, limits } = jobOf("commits");
    expect(limits.memory).toBe("2Gi");
    expect(readSettings(values).limits.cloneBytes).toBeLessThanOrEqual(2 ** 30);
    expect(readSettings(values).cache).toBeUndefined();
    expect(stageOf("leaderboard")).not.toMatch(/LEADERBOARD_CACHE=/);
  });
});

describe("the arguments of the jobs, run as processes", async () => {
  const { url } = await freshDatabase();
  const known = async () => {
    const client = new pg.Client(url);
    await client.connect();
    const { rows } = await client
      .query("select name from stillwake.pipelines order by name")
      .finally(() => client.end());
    return rows.map(({ name }) => name);
  };

  it.each([
    ["commits", commits],
    ["users", users],
  ] as const)(
    "%s: the registration registers its pipeline, and the drain exits with 0 if there is no job",
    async (name, pipeline) => {
      const { args, values } = jobOf(name);
      const env = { ...values, STILLWAKE_DATABASE_URL: url, STILLWAKE_DIR: os.tmpdir() };
      const [, list] = /"--args=dist\/cli\/index\.js,(.*)"/.exec(text("schedulers.sh"))!;
      const registered = await runCli(list!.replace("$1", name).split(","), env);
      expect(registered, registered.stderr).toMatchObject({ code: 0, stdout: expect.stringContaining(pipeline.name) });
      expect(await known()).toContain(pipeline.name);
      const drained = await runCli(args.slice(1), env);
      expect(drained, drained.stderr).toMatchObject({
        code: 0,
        stdout: expect.stringContaining("nothing is left to do"),
      });
    },
  );
});

describe("the image", () => {
  const image = stageOf("leaderboard");

  it("installs git, its certificates and tini, and no scanner", () => {
    const [, installed] = /apt-get install -y --no-install-recommends (.*) \\$/m.exec(image) ?? [];
    expect(installed?.split(" ").map((name) => name.split("=")[0])).toEqual(["git", "ca-certificates", "tini"]);
  });

  it("is a worker by default, below an init that reaps the processes git leaves behind", () => {
    expect(commandOf(image).slice(0, 6)).toEqual(["tini", "-s", "--", "node", "dist/cli/index.js", "worker"]);
  });
});

describe("all files", () => {
  it(`the script has no problem${hasShellcheck ? "" : " (shellcheck is not installed)"}`, () => {
    expect(checkScript(path.join(DEPLOY, "schedulers.sh"))).toEqual([]);
  });

  it("no file contains a secret", () => {
    for (const name of fs.readdirSync(DEPLOY)) {
      expect(text(name), name).not.toMatch(/postgres(ql)?:\/\/|gh[pousr]_|github_pat_|BEGIN .*KEY/);
    }
  });
});

it("login.sql: the worker reads no table, and pipeline code creates no repository", async () => {
  await checkLogins("leaderboard", migrate, async (rights) => {
    expect(await rights("leaderboard_server", "leaderboard.repositories")).toContain("insert");
    expect(await rights("leaderboard_code", "leaderboard.commit_data")).toContain("insert");
    expect(await rights("leaderboard_code", "leaderboard.repositories")).toEqual(["select", "update"]);
    expect(await rights("leaderboard_code", "stillwake.jobs")).toEqual([]);
    for (const table of ["leaderboard.repositories", "leaderboard.commit_data", "stillwake.jobs"]) {
      expect(await rights("leaderboard_worker", table), table).toEqual([]);
    }
  });
});
