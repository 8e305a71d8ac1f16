// The files of deploy/: Fly's configuration, the rights of the logins, and scanners.sh against a fake curl. setup.test.ts
// runs setup.sh, image.test.ts builds and runs the image.
import { spawnSync } from "node:child_process";
import { createHash } from "node:crypto";
import fs from "node:fs";
import os from "node:os";
import path from "node:path";
import { Ajv } from "ajv";
import { parse as parseToml } from "smol-toml";
import { afterAll, describe, expect, it } from "vitest";
import { checkScript, flyKeys, hasShellcheck } from "../../../../test/support/providers/deploy-files.ts";
import { checkLogins, commandOf, stageOf } from "../../../kit/test/support/deploy.ts";
import { shared } from "../../../kit/test/support/shared-data.ts";
import { migrate } from "../../src/app.ts";

const HOME = path.resolve(import.meta.dirname, "../..");
const DEPLOY = path.join(HOME, "deploy");
const base = fs.realpathSync(fs.mkdtempSync(path.join(os.tmpdir(), "stillwake-extraction-deploy-")));
const text = (name: string) => fs.readFileSync(path.join(DEPLOY, name), "utf8");

afterAll(() => fs.rmSync(base, { recursive: true, force: true }));

describe("the files", () => {
  const schema = shared("data/schemas/fly.toml.schema.json");

  it.each(["fly.toml", "fly.api.toml"])(
    `%s has only known keys${schema ? " and matches Fly's schema" : " (Fly's schema is not available)"}`,
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
        for (const entry of [found ?? []].flat()) {
          expect(
            Object.keys(entry).filter((key) => !known[table as keyof typeof known].includes(key)),
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

  it("fly.toml is a worker of performance-8x with 64 GB in iad, without a service", () => {
    const toml = parseToml(text("fly.toml"));
    expect(toml).toMatchObject({
      primary_region: "iad",
      vm: [{ size: "performance-8x", memory: "64gb", processes: ["scan"] }],
    });
    expect(toml).not.toHaveProperty("http_service");
    expect(toml).not.toHaveProperty("services");
    // The orchestrator sets no command: its machines run that of the image.
    const [, ...args] = commandOf(stageOf("extraction"));
    expect((toml.processes as { scan: string }).scan).toBe(args.join(" "));
  });

  it(`the scripts have no problem${hasShellcheck ? "" : " (shellcheck is not installed)"}`, () => {
    for (const name of ["setup.sh", "scanners.sh"]) expect(checkScript(path.join(DEPLOY, name)), name).toEqual([]);
  });

  it("no file contains a secret", () => {
    for (const name of fs.readdirSync(DEPLOY)) {
      expect(text(name), name).not.toMatch(/postgres(ql)?:\/\/|fm2_|FlyV1|BEGIN .*KEY/);
    }
  });
});

it("login.sql: pipeline code reads no credentials, and the worker reads no table", async () => {
  await checkLogins("extraction", migrate, async (rights) => {
    expect(await rights("extraction_server", "extraction.integrations")).toContain("select");
    expect(await rights("extraction_code", "extraction.vulnerabilities")).toContain("insert");
    for (const table of ["extraction.integrations", "extraction.projects", "stillwake.jobs"]) {
      expect(await rights("extraction_code", table), table).not.toContain("select");
    }
    for (const table of ["extraction.repositories", "extraction.findings", "stillwake.jobs"]) {
      expect(await rights("extraction_worker", table), table).toEqual([]);
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
    // The last two arguments are the file of --output and the URL.
    fs.writeFileSync(
      path.join(bin, "curl"),
      `#!/bin/bash\necho "\${@: -1}" >"${into}/url"\ncp "${archive}" "\${@: -2:1}"\n`,
      { mode: 0o755 },
    );
    const { status, stderr } = spawnSync("bash", [path.join(DEPLOY, "scanners.sh"), into], {
      encoding: "utf8",
      env: { PATH: `${bin}:/usr/bin:/bin`, ...env },
    });
    const url = path.join(into, "url");
    return {
      status,
      stderr,
      found: fs.readdirSync(path.join(into, "bin")),
      url: fs.existsSync(url) ? fs.readFileSync(url, "utf8").trim() : undefined,
    };
  };

  it("installs nothing by default, and a release only if its checksum matches", () => {
    expect(install({})).toMatchObject({ status: 0, found: [], url: undefined });
    expect(install({ GITLEAKS_VERSION: "8.26.0", GITLEAKS_SHA256: checksum })).toMatchObject({
      status: 0,
      found: ["gitleaks"],
      url: "https://github.com/gitleaks/gitleaks/releases/download/v8.26.0/gitleaks_8.26.0_linux_x64.tar.gz",
    });
  });

  it("refuses a wrong or missing checksum, a version that is not exact, and a missing requirements file", () => {
    const refused: [Record<string, string>, RegExp][] = [
      [{ GITLEAKS_VERSION: "8.26.0", GITLEAKS_SHA256: "0".repeat(64) }, /the checksum of \S+ does not match/],
      [{ GITLEAKS_VERSION: "8.26.0" }, /gitleaks 8\.26\.0: set its SHA-256/],
      [{ TRUFFLEHOG_VERSION: "latest", TRUFFLEHOG_SHA256: checksum }, /"latest" is not a full version/],
      [{ PYTHON_TOOLS: "../../etc/passwd" }, /no file "/],
    ];
    for (const [env, message] of refused) {
      const result = install(env);
      expect(result).toMatchObject({ status: 1, found: [] });
      expect(result.stderr).toMatch(message);
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

const known = { ...flyKeys, build: [...flyKeys.build, "build-target"] };
