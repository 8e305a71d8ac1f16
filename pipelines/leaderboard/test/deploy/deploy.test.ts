// The files of deploy/: each is held to what its platform reads, no file has a secret in it, and every variable that a job is given is one that the code looks at.
// schedulers.sh is run by deploy-schedulers.test.ts.
import fs from "node:fs";
import os from "node:os";
import path from "node:path";
import pg from "pg";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { freshDatabase } from "../../../../test/support/database/database.ts";
import { ROOT } from "../../../../test/support/processes/build.ts";
import { runCli } from "../../../../test/support/processes/cli.ts";
import {
  hasShellcheck,
  variablesRead,
  wrongInDockerfile,
  wrongInIgnored,
  wrongInScript,
} from "../../../../test/support/providers/deploy-files.ts";
import {
  officialIsAtHand,
  readCloudRunJob,
  wrongInCloudRunJob,
} from "../../../../test/support/providers/schemas/cloud-run-job.ts";
import { commits, users } from "../../src/contract.ts";
import { readSettings } from "../../src/settings.ts";
import { migrate } from "../../src/tables.ts";

const HOME = path.resolve(import.meta.dirname, "../..");
const DEPLOY = path.join(HOME, "deploy");
const text = (name: string) => fs.readFileSync(path.join(DEPLOY, name), "utf8");

/** As schedulers.sh fills it in. */
const filled = (name: string) =>
  readCloudRunJob(text(name).replace("PROJECT.iam", "acme-prod.iam").replace("image: IMAGE", "image: acme/board:v1"));
const jobOf = (name: string) => {
  const { spec } = filled(`${name}.job.yaml`).spec.template.spec.template;
  const [{ args, env, resources }] = spec.containers;
  const values = Object.fromEntries(env.flatMap((one) => ("value" in one ? [[one.name, one.value]] : [])));
  const secrets = Object.fromEntries(
    env.flatMap((one) => ("value" in one ? [] : [[one.name, one.valueFrom.secretKeyRef]])),
  );
  return { spec, args, values, secrets, limits: resources.limits };
};

describe("the jobs", () => {
  it.each(["commits.job.yaml", "users.job.yaml"])(
    `%s has only what Cloud Run knows${officialIsAtHand ? ", and in the words of v2 what Google's own description has" : " (Google's description is not at hand)"}`,
    (name) => {
      expect(wrongInCloudRunJob(filled(name))).toEqual([]);
      expect(filled(name).metadata.name).toBe(`leaderboard-${name.split(".")[0]}`);
    },
  );

  it("what is wrong in one is found", () => {
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
    "%s drains its own pool with its own pipeline as its own account, is tried once, and is given more time than a job",
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

  it("the token of GitHub is the users' alone; logins come from Secret Manager, that of the code apart from that of the worker", () => {
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

  it("every variable of a job and of the image is one that the code looks at", () => {
    const known = variablesRead(readSettings);
    const [, set = ""] = /^ENV NODE_ENV=production (.*)$/m.exec(text("Dockerfile")) ?? [];
    const named = [
      ...["commits", "users"].flatMap((name) => Object.keys({ ...jobOf(name).values, ...jobOf(name).secrets })),
      ...[...set.matchAll(/\b([A-Z_]+)=/g)].map(([, name]) => name!),
    ];
    expect(named).toEqual(expect.arrayContaining(["LEADERBOARD_CLONE_GB", "STILLWAKE_DIR"]));
    expect(named.filter((name) => !known.has(name))).toEqual([]);
  });

  it("a clone has room in the memory, where files are on Cloud Run, and none is kept there", () => {
    const { values, limits } = jobOf("commits");
    expect(limits.memory).toBe("2Gi");
    expect(readSettings(values).limits.cloneBytes).toBeLessThanOrEqual(2 ** 30);
    expect(readSettings(values).cache).toBeUndefined();
    expect(text("Dockerfile")).not.toMatch(/LEADERBOARD_CACHE=/);
  });
});

describe("the words of the jobs, as processes", async () => {
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
    "%s: the try makes its pipeline known, and the drain ends well when there is nothing to do",
    async (name, pipeline) => {
      const { args, values } = jobOf(name);
      const env = { ...values, STILLWAKE_DATABASE_URL: url, STILLWAKE_DIR: os.tmpdir() };
      const [, words] = /"--args=dist\/cli\/index\.js,(.*)"/.exec(text("schedulers.sh"))!;
      const tried = await runCli(words!.replace("$1", name).split(","), env);
      expect(tried, tried.stderr).toMatchObject({ code: 0, stdout: expect.stringContaining(pipeline.name) });
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
  const dockerfile = text("Dockerfile");
  const [, packages = "", build = "", last = ""] = dockerfile.split(/^FROM /m);

  it("pins its base and what it installs, is not root's, hears SIGTERM, and the linter finds nothing", () => {
    expect(wrongInDockerfile(path.join(DEPLOY, "Dockerfile"))).toEqual([]);
    expect(packages).toContain("npm ci --omit=dev --workspace @stillwake/leaderboard --include-workspace-root");
  });

  it("installs git and nothing that looks into repositories", () => {
    const [, installed] = /apt-get install -y --no-install-recommends (.*) \\$/m.exec(last) ?? [];
    expect(installed?.split(" ").map((one) => one.split("=")[0])).toEqual(["git", "ca-certificates", "tini"]);
  });

  it("is a worker unless it is told otherwise, with a first process that takes over what git leaves behind", () => {
    expect(JSON.parse(/^ENTRYPOINT (.*)$/m.exec(last)![1]!)).toEqual(["tini", "-s", "--", "node"]);
    expect(JSON.parse(/^CMD (.*)$/m.exec(last)![1]!).slice(0, 2)).toEqual(["dist/cli/index.js", "worker"]);
  });

  it("leaves out what lies about in a working copy", () => {
    expect(wrongInIgnored(path.join(DEPLOY, "Dockerfile.dockerignore"))).toEqual([]);
  });

  it("takes along files that are there, and for its build the package.json of every workspace", () => {
    const copied = [...dockerfile.matchAll(/^COPY (?!--from=packages)(?:--from=build )?(.*) \S+$/gm)]
      .flatMap(([, names]) => names!.split(" "))
      .map((name) => name.replace(/^\/app\//, ""))
      .filter((name) => name !== "." && !/(^|\/)dist$/.test(name));
    expect(copied).toContain("pipelines/leaderboard/tables.sql");
    expect(copied.filter((name) => !fs.existsSync(path.join(ROOT, name)))).toEqual([]);
    const systems = fs.readdirSync(path.join(ROOT, "pipelines")).map((name) => `pipelines/${name}/package.json`);
    const needed = systems.filter((name) => fs.existsSync(path.join(ROOT, name)));
    expect(needed.filter((name) => !build.includes(`COPY ${name} `))).toEqual([]);
  });
});

describe("all files", () => {
  it(`bash takes the script${hasShellcheck ? ", and shellcheck finds nothing" : " (shellcheck is not installed)"}`, () => {
    expect(wrongInScript(path.join(DEPLOY, "schedulers.sh"))).toEqual([]);
  });

  it("no file has the value of a secret", () => {
    for (const name of fs.readdirSync(DEPLOY)) {
      expect(text(name), name).not.toMatch(/postgres(ql)?:\/\/|gh[pousr]_|github_pat_|BEGIN .*KEY/);
    }
  });
});

describe("login.sql", async () => {
  const { url } = await freshDatabase();
  const owner = new pg.Pool({ connectionString: url, max: 2 });
  // Roles belong to the whole Postgres, which other tests use too.
  const own = (name: string) => `${name}_of_this_test`;
  const logins = ["leaderboard_code", "leaderboard_server", "leaderboard_worker"].map(own);
  const statements = text("login.sql").replaceAll(/leaderboard_(code|server|worker)/g, own);
  const rights = async (login: string, table: string): Promise<string[]> => {
    const { rows } = await owner.query(
      "select w.what from unnest(array['select', 'insert', 'update', 'delete']) w (what) where has_table_privilege($1, $2, w.what)",
      [own(login), table],
    );
    return rows.map(({ what }) => what);
  };

  beforeAll(() => migrate(owner));
  afterAll(async () => {
    for (const login of logins) await owner.query(`drop owned by ${login}; drop role ${login}`);
    await owner.end();
  });

  it("says what has to be there first", async () => {
    await expect(owner.query(statements.replaceAll("leaderboard_api", "nobody"))).rejects.toMatchObject({
      message: "The roles nobody are not there",
      hint: expect.stringContaining("--migrate"),
    });
  });

  it("makes three logins without a password, of which the worker's reads no table and the code's makes no repository; and may be run again", async () => {
    await owner.query(statements);
    await owner.query(statements);
    const { rows } = await owner.query(
      "select rolname, rolcanlogin, rolpassword, rolsuper or rolcreaterole or rolcreatedb as mighty from pg_authid where rolname = any ($1) order by rolname",
      [logins],
    );
    expect(rows).toEqual(logins.map((rolname) => ({ rolname, rolcanlogin: true, rolpassword: null, mighty: false })));
    expect(await rights("leaderboard_server", "leaderboard.repositories")).toContain("insert");
    expect(await rights("leaderboard_code", "leaderboard.commit_data")).toContain("insert");
    expect(await rights("leaderboard_code", "leaderboard.repositories")).toEqual(["select", "update"]);
    expect(await rights("leaderboard_code", "stillwake.jobs")).toEqual([]);
    for (const table of ["leaderboard.repositories", "leaderboard.commit_data", "stillwake.jobs"]) {
      expect(await rights("leaderboard_worker", table), table).toEqual([]);
    }
  });
});
