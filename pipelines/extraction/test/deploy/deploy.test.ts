// The files of deploy/: each is held to what its platform reads, no file has a secret in it, and the scripts are run against stand-ins that record every call.
// The image itself is built and run by image.test.ts.
import { spawnSync } from "node:child_process";
import { createHash } from "node:crypto";
import fs from "node:fs";
import { createRequire } from "node:module";
import os from "node:os";
import path from "node:path";
import { Ajv } from "ajv";
import pg from "pg";
import { parse as parseToml } from "smol-toml";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { freshDatabase } from "../../../../test/support/database/database.ts";
import { migrate } from "../../src/tables.ts";
import { shared } from "../support/shared-data.ts";

const HOME = path.resolve(import.meta.dirname, "../..");
const DEPLOY = path.join(HOME, "deploy");
const base = fs.realpathSync(fs.mkdtempSync(path.join(os.tmpdir(), "stillwake-extraction-deploy-")));
const require = createRequire(import.meta.url);
/** Not everybody has it. */
const hasShellcheck = spawnSync("shellcheck", ["--version"]).status === 0;
const text = (name: string) => fs.readFileSync(path.join(DEPLOY, name), "utf8");
const scripts = ["setup.sh", "scanners.sh"];

afterAll(() => fs.rmSync(base, { recursive: true, force: true }));

describe("the files", () => {
  const schema = shared("data/schemas/fly.toml.schema.json");

  it.each(["fly.toml", "fly.api.toml"])(
    `%s has only keys that we know${schema ? ", and is what Fly's schema describes" : " (Fly's schema is not at hand)"}`,
    (name) => {
      const toml = parseToml(text(name)) as unknown as FlyToml;
      expect(Object.keys(toml).filter((key) => !known[""].includes(key))).toEqual([]);
      const tables = {
        build: toml.build,
        http_service: toml.http_service,
        checks: toml.http_service?.checks,
        vm: toml.vm,
      };
      for (const [table, found] of Object.entries(tables)) {
        for (const one of [found ?? []].flat()) {
          expect(
            Object.keys(one).filter((key) => !known[table as keyof typeof known].includes(key)),
            table,
          ).toEqual([]);
        }
      }
      if (schema) {
        const validate = new Ajv({ strict: false, allErrors: true }).compile(
          JSON.parse(fs.readFileSync(schema, "utf8")),
        );
        validate(toml);
        expect(validate.errors ?? []).toEqual([]);
      }
      expect(toml.kill_signal).toBe("SIGTERM");
      expect(toml.vm.flatMap(({ processes }) => processes).sort()).toEqual(Object.keys(toml.processes).sort());
    },
  );

  it("fly.toml is a worker of performance-8x with 64 GB in iad, without any service", () => {
    const toml = parseToml(text("fly.toml"));
    expect(toml).toMatchObject({
      primary_region: "iad",
      vm: [{ size: "performance-8x", memory: "64gb", processes: ["scan"] }],
    });
    expect(toml).not.toHaveProperty("http_service");
    expect(toml).not.toHaveProperty("services");
    // The command is that of the image: machines that the orchestrator makes are given none.
    const [, ...words] = [
      JSON.parse(/^ENTRYPOINT (.*)$/m.exec(text("Dockerfile"))![1]!),
      ...JSON.parse(/^CMD (.*)$/m.exec(text("Dockerfile"))![1]!),
    ];
    expect((toml.processes as { scan: string }).scan).toBe(words.join(" "));
  });

  it("the Dockerfile pins its base and what it installs, is not root's, hears SIGTERM itself, and the linter finds nothing", () => {
    const dockerfile = text("Dockerfile");
    const bases = dockerfile.match(/^FROM \S+/gm)!;
    expect(new Set(bases)).toHaveLength(1);
    expect(bases[0]).toMatch(/^FROM node:\d+\.\d+\.\d+-bookworm-slim$/);
    expect(dockerfile.match(/^.*\bnpm ci\b.*$/gm)).toEqual([
      expect.stringContaining("--omit=dev --workspace @stillwake/extraction --include-workspace-root --ignore-scripts"),
      expect.stringContaining("--ignore-scripts"),
    ]);
    for (const [, name] of dockerfile.matchAll(/apt-get install -y --no-install-recommends ([^\n\\]*)/g)) {
      expect(
        name!
          .trim()
          .split(/\s+/)
          .every((one) => /^[a-z0-9-]+=\d/.test(one)),
        name,
      ).toBe(true);
    }
    expect(dockerfile).toMatch(/^USER 1000:1000$/m);
    expect(dockerfile).toMatch(/^STOPSIGNAL SIGTERM$/m);
    expect(dockerfile).toMatch(/^ENTRYPOINT \["node"\]$/m);
    const { run } = require("dockerfilelint") as { run(dir: string, text: string): unknown[] };
    expect(run(DEPLOY, dockerfile)).toEqual([]);
  });

  it("what lies about in a working copy does not get into the image by being forgotten", () => {
    const lines = text("Dockerfile.dockerignore")
      .split("\n")
      .filter((line) => line !== "" && !line.startsWith("#"));
    expect(lines[0]).toBe("*");
    const allowed = lines.filter((line) => line.startsWith("!")).map((line) => line.slice(1));
    expect(allowed.some((name) => /\.env|\.npmrc|\.stillwake|\.git/.test(name))).toBe(false);
    expect(lines.slice(-7)).toEqual([
      "**/dist",
      "**/node_modules",
      "**/.env",
      "**/.env.*",
      "**/.npmrc",
      "**/*.pem",
      "**/*.key",
    ]);
  });

  it("every file that the Dockerfile takes along is there and is not ignored", () => {
    const root = path.resolve(HOME, "../..");
    const copied = [
      ...text("Dockerfile").matchAll(/^COPY (?!--from=packages|--from=scanners)(?:--from=build )?(.*) \S+$/gm),
    ]
      .flatMap(([, names]) => names!.split(" "))
      .map((name) => name.replace(/^\/app\//, ""))
      .filter((name) => name !== "." && !/(^|\/)dist$/.test(name));
    expect(copied).toEqual(expect.arrayContaining(["pipelines/extraction/tables.sql", "pipelines/kit/package.json"]));
    expect(copied.filter((name) => !fs.existsSync(path.join(root, name)))).toEqual([]);
  });

  it(`bash takes the scripts${hasShellcheck ? ", shellcheck finds nothing," : " (shellcheck is not installed)"} and they stop at the first error`, () => {
    for (const name of scripts) {
      expect(spawnSync("bash", ["-n", path.join(DEPLOY, name)]), name).toMatchObject({ status: 0 });
      expect(text(name), name).toMatch(/^#!\/usr\/bin\/env bash\n(#.*\n)+set -euo pipefail\n/);
      expect(fs.statSync(path.join(DEPLOY, name)).mode & 0o111, name).toBe(0o111);
      if (hasShellcheck) expect(String(spawnSync("shellcheck", [path.join(DEPLOY, name)]).stdout), name).toBe("");
    }
  });

  it("no file has the value of a secret", () => {
    for (const name of fs.readdirSync(DEPLOY)) {
      expect(text(name), name).not.toMatch(/postgres(ql)?:\/\/|fm2_|FlyV1|BEGIN .*KEY/);
    }
  });
});

describe("login.sql", async () => {
  const { url } = await freshDatabase();
  const owner = new pg.Pool({ connectionString: url, max: 2 });
  // Roles belong to the whole Postgres, which other tests use too.
  const own = (name: string) => `${name}_of_this_test`;
  const logins = ["extraction_code", "extraction_server", "extraction_worker"].map(own);
  const statements = text("login.sql").replaceAll(/extraction_(code|server|worker)/g, own);
  const right = async (login: string, table: string, what: string): Promise<boolean> =>
    (await owner.query("select has_table_privilege($1, $2, $3) as has", [own(login), table, what])).rows[0].has;

  beforeAll(() => migrate(owner));
  afterAll(async () => {
    for (const login of logins) await owner.query(`drop owned by ${login}; drop role ${login}`);
    await owner.end();
  });

  it("says what has to be there first", async () => {
    await expect(owner.query(statements.replaceAll("extraction_api", "nobody"))).rejects.toMatchObject({
      message: "The roles nobody are not there",
      hint: expect.stringContaining("--migrate"),
    });
  });

  it("makes three logins without a password, of which the pipeline's reads no credential and the worker's no table; and may be run again", async () => {
    await owner.query(statements);
    await owner.query(statements);
    const { rows } = await owner.query(
      "select rolname, rolcanlogin, rolpassword, rolsuper or rolcreaterole or rolcreatedb as mighty from pg_authid where rolname = any ($1) order by rolname",
      [logins],
    );
    expect(rows).toEqual(logins.map((rolname) => ({ rolname, rolcanlogin: true, rolpassword: null, mighty: false })));
    expect(await right("extraction_server", "extraction.integrations", "select")).toBe(true);
    expect(await right("extraction_code", "extraction.vulnerabilities", "insert")).toBe(true);
    for (const table of ["extraction.integrations", "extraction.projects", "stillwake.jobs"]) {
      expect(await right("extraction_code", table, "select"), table).toBe(false);
    }
    for (const table of ["extraction.repositories", "extraction.findings", "stillwake.jobs"]) {
      expect(await right("extraction_worker", table, "select"), table).toBe(false);
    }
  });
});

describe("scanners.sh", () => {
  const archive = path.join(base, "gitleaks.tar.gz");
  fs.writeFileSync(path.join(base, "gitleaks"), "#!/bin/sh\necho 8.26.0\n", { mode: 0o755 });
  spawnSync("tar", ["-czf", archive, "-C", base, "gitleaks"]);
  const checksum = createHash("sha256").update(fs.readFileSync(archive)).digest("hex");
  const install = (env: Record<string, string>) => {
    const into = fs.mkdtempSync(path.join(base, "scanners-"));
    const bin = fs.mkdtempSync(path.join(base, "bin-"));
    // As curl is called: the last two words are --output's file and the address.
    fs.writeFileSync(
      path.join(bin, "curl"),
      `#!/bin/bash\necho "\${@: -1}" >"${into}/asked"\ncp "${archive}" "\${@: -2:1}"\n`,
      { mode: 0o755 },
    );
    const { status, stderr } = spawnSync("bash", [path.join(DEPLOY, "scanners.sh"), into], {
      encoding: "utf8",
      env: { PATH: `${bin}:/usr/bin:/bin`, ...env },
    });
    const asked = path.join(into, "asked");
    return {
      status,
      stderr,
      found: fs.readdirSync(path.join(into, "bin")),
      asked: fs.existsSync(asked) ? fs.readFileSync(asked, "utf8").trim() : undefined,
    };
  };

  it("installs nothing unless it is told to, and then only what has the checksum", () => {
    expect(install({})).toMatchObject({ status: 0, found: [], asked: undefined });
    expect(install({ GITLEAKS_VERSION: "8.26.0", GITLEAKS_SHA256: checksum })).toMatchObject({
      status: 0,
      found: ["gitleaks"],
      asked: "https://github.com/gitleaks/gitleaks/releases/download/v8.26.0/gitleaks_8.26.0_linux_x64.tar.gz",
    });
  });

  it("refuses another checksum, none, a version that moves, and a list that is not there", () => {
    const refused: [Record<string, string>, RegExp][] = [
      [{ GITLEAKS_VERSION: "8.26.0", GITLEAKS_SHA256: "0".repeat(64) }, /has another checksum, and is not used/],
      [{ GITLEAKS_VERSION: "8.26.0" }, /gitleaks 8\.26\.0: give its SHA-256/],
      [{ TRUFFLEHOG_VERSION: "latest", TRUFFLEHOG_SHA256: checksum }, /"latest" is no whole version/],
      [{ PYTHON_TOOLS: "../../etc/passwd" }, /there is no file/],
    ];
    for (const [env, message] of refused) {
      const told = install(env);
      expect(told).toMatchObject({ status: 1, found: [] });
      expect(told.stderr).toMatch(message);
    }
  });
});

interface FlyToml {
  kill_signal: string;
  build?: object;
  processes: Record<string, string>;
  http_service?: { checks: object[] };
  vm: { processes: string[] }[];
}

const known = {
  "": ["app", "primary_region", "kill_signal", "kill_timeout", "env", "build", "processes", "http_service", "vm"],
  build: ["dockerfile", "ignorefile"],
  http_service: [
    "internal_port",
    "force_https",
    "auto_stop_machines",
    "auto_start_machines",
    "min_machines_running",
    "processes",
    "checks",
  ],
  checks: ["method", "path", "interval", "timeout", "grace_period"],
  vm: ["size", "memory", "processes"],
};
