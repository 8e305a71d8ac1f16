// The step "sbom" with the real cdxgen: results, failures, and hostile repositories.
import fs from "node:fs";
import os from "node:os";
import path from "node:path";
import { explain, logJobFailure, logStepFailure } from "@stillwake/kit/failures";
import { findTool } from "@stillwake/kit/tools";
import { createStillwake, JobFailed, type LogLine, pipeline } from "stillwake";
import { createWorker, implement, type StepHandle } from "stillwake/worker";
import { afterAll, beforeAll, describe, it } from "vitest";
import { freshDatabase } from "../../../../test/support/database/database.ts";
import { recordFigure } from "../../../../test/support/figures.ts";
import { shared } from "../../../kit/test/support/shared-data.ts";
import { crashLine, unreadableFiles } from "../../src/sbom/cdxgen-output.ts";
import { readBom } from "../../src/sbom/components.ts";
import { generateSbom } from "../../src/sbom/sbom.ts";
import { packagedTool } from "../../src/tools.ts";

const SAMPLE = path.resolve(import.meta.dirname, "../../sample/repository");
const { url } = await freshDatabase();
const folder = fs.realpathSync(fs.mkdtempSync(path.join(os.tmpdir(), "extraction-sbom-")));
const scratch = path.join(folder, "scratch");
fs.mkdirSync(scratch);

interface SbomCase {
  files?: Record<string, string>;
  /** A folder to copy into the checkout first. */
  copy?: string;
  packagePath?: string;
  sbomMs?: number;
  /** Called with the checkout before cdxgen runs. */
  prepare?(source: string): void;
}

interface SbomResult {
  components: number;
  manifests: string[];
  purls: string[];
  direct: string[];
  tookMs: number;
}

const cases: SbomCase[] = [];

const contract = pipeline<{ index: number }>("sbom", { pool: "sbom", retry: { attempts: 1 } });
const code = implement(
  contract,
  (job, input) =>
    logJobFailure(job, "Extraction", () =>
      job.step("sbom", {}, (step: StepHandle) =>
        logStepFailure(step, async (): Promise<SbomResult> => {
          const { files = {}, copy, packagePath = ".", sbomMs = 120_000, prepare } = cases[input.index]!;
          const directory = path.join(await step.scratch(), "source");
          fs.mkdirSync(directory);
          if (copy) fs.cpSync(copy, directory, { recursive: true });
          if (copy) fs.chmodSync(directory, 0o700);
          for (const [name, text] of Object.entries(files)) {
            fs.mkdirSync(path.dirname(path.join(directory, name)), { recursive: true });
            fs.writeFileSync(path.join(directory, name), text, { mode: 0o755 });
          }
          prepare?.(directory);
          const began = performance.now();
          const limits = { sbomMs } as Parameters<typeof generateSbom>[1]["settings"]["limits"];
          const { file, components, manifests } = await generateSbom(step, {
            directory,
            packagePath,
            settings: { limits },
          });
          const tookMs = performance.now() - began;
          const { dependencies } = await readBom(file);
          const purls = dependencies.map(({ purl }) => purl);
          const direct = dependencies.filter((dependency) => dependency.direct).map(({ purl }) => purl);
          return { components, manifests, purls, direct, tookMs };
        }),
      ),
    ),
  { explain },
);

const stillwake = createStillwake({ url });
const worker = createWorker({ url, scratch, pool: "sbom", pipelines: [code], slots: 2 });
beforeAll(() => worker.start());
afterAll(async () => {
  await worker.stop();
  await stillwake.close();
  fs.rmSync(folder, { recursive: true, force: true });
});

async function sbomOf(
  sbomCase: SbomCase,
): Promise<{ result: SbomResult | undefined; code: string | undefined; lines: string[] }> {
  const { id } = await stillwake.enqueue(contract, { index: cases.push(sbomCase) - 1 });
  const job = await stillwake.wait(id, { timeout: "100s" }).catch((error) => {
    if (error instanceof JobFailed) return stillwake.get(id);
    throw error;
  });
  const logs: LogLine[] = await stillwake.logs(id);
  const result = job.state === "completed" ? (job.output as unknown as SbomResult) : undefined;
  // A retried failure is the cause of RETRIES_EXHAUSTED.
  const failure = job.failure?.code === "RETRIES_EXHAUSTED" ? job.failure.cause : job.failure;
  return {
    result,
    code: (failure as { code?: string } | undefined)?.code,
    lines: logs.map(({ level, message }) => `${level} ${message}`),
  };
}

const MANIFEST = '{"name":"a","version":"1.0.0","dependencies":{"lodash":"4.17.15"}}';
const EMPTY = "No dependencies found - the package manifest may be empty or in an unsupported format";
const noManifest = (at: string) => `No package manifest found at '${at}' - check your project's package path setting`;

describe.concurrent("the SBOM", { timeout: 120_000 }, () => {
  it("lists the dependencies of three kinds of manifests of the sample", async ({ expect }) => {
    const { result, lines } = await sbomOf({ copy: SAMPLE });
    expect(lines).toEqual([]);
    expect(result?.components).toBe(15);
    expect(result?.direct).toEqual([
      "pkg:golang/github.com/dgrijalva/jwt-go@v3.2.0%2Bincompatible",
      "pkg:golang/golang.org/x/text@v0.3.0",
      "pkg:npm/debug@2.6.8",
      "pkg:npm/js-yaml@3.13.0",
      "pkg:npm/lodash@4.17.15",
      "pkg:npm/minimist@1.2.0",
      "pkg:npm/mkdirp@0.5.1",
      "pkg:pypi/jinja2@2.10",
      "pkg:pypi/pyyaml@5.3",
      "pkg:pypi/requests@2.19.0",
    ]);
    expect(result?.purls).toContain("pkg:npm/minimist@0.0.8");
  });

  const repository = shared("data/repo-sample");
  it.skipIf(!repository)(
    `finds 58 components in the sample repository, 53 of npm, 3 of PyPI and 2 of Go${repository ? "" : " (skipped: ../shared is missing)"}`,
    async ({ expect }) => {
      const { result } = await sbomOf({ copy: repository! });
      const countOf = (kind: string) => result?.purls.filter((purl) => purl.startsWith(`pkg:${kind}/`)).length;
      expect([result?.components, countOf("npm"), countOf("pypi"), countOf("golang")]).toEqual([58, 53, 3, 2]);
      expect(result?.direct).toEqual([
        "pkg:golang/github.com/gin-gonic/gin@v1.6.0",
        "pkg:golang/golang.org/x/text@v0.3.5",
        "pkg:npm/express@4.17.1",
        "pkg:npm/lodash@4.17.15",
        "pkg:npm/minimist@1.2.0",
        "pkg:npm/node-fetch@2.6.0",
        "pkg:pypi/django@2.2.0",
        "pkg:pypi/pyyaml@5.1",
        "pkg:pypi/requests@2.19.1",
      ]);
      recordFigure("extraction_sbom_sample", Math.round(result!.tookMs), "ms", "58 components, with cdxgen's start");
    },
  );

  it("covers only the package path", async ({ expect }) => {
    const { result } = await sbomOf({ copy: SAMPLE, packagePath: "tools" });
    expect(result?.manifests).toEqual(["tools/requirements.txt"]);
    expect(result?.purls).toEqual(["pkg:pypi/jinja2@2.10", "pkg:pypi/pyyaml@5.3", "pkg:pypi/requests@2.19.0"]);
  });

  it.for([
    ["is missing", { packagePath: "apps/web" }],
    ["is a file", { packagePath: "README.md", files: { "README.md": "hello" } }],
    ["has no known manifest", { packagePath: "docs", files: { "docs/README.md": "hello", "package.json": MANIFEST } }],
    [
      "leads out of the checkout",
      { packagePath: "link", prepare: (source) => fs.symlinkSync(SAMPLE, path.join(source, "link")) },
    ],
  ] satisfies [string, SbomCase][])(
    "fails because there is no manifest if the package path %s",
    async ([, sbomCase], { expect }) => {
      const { code, lines } = await sbomOf(sbomCase);
      expect(code).toBe("SBOM_NO_MANIFEST");
      const message = noManifest(sbomCase.packagePath);
      expect(lines).toEqual([`error ${message}`, `error Extraction failed: ${message}`]);
    },
  );

  it("fails because it is empty if the manifest names no dependency", async ({ expect }) => {
    const { code, lines } = await sbomOf({ files: { "package.json": '{"name":"a","version":"1.0.0"}' } });
    expect(code).toBe("SBOM_EMPTY");
    expect(lines).toEqual([`error ${EMPTY}`, `error Extraction failed: ${EMPTY}`]);
  });

  it("fails with the name of the damaged lockfile if nothing else is found", async ({ expect }) => {
    const { code, lines } = await sbomOf({
      files: { "web/package.json": MANIFEST, "web/package-lock.json": '{"packages": {' },
    });
    expect(code).toBe("SBOM_DAMAGED");
    expect(lines[0]).toBe(
      "error 'web/package-lock.json' could not be read - it may be damaged or in an unsupported format",
    );
  });

  it("has a warning about a damaged lockfile if others are valid", async ({ expect }) => {
    const files = { "web/package.json": MANIFEST, "web/package-lock.json": "{", "py/requirements.txt": "flask==1.0\n" };
    const { result, lines } = await sbomOf({ files });
    expect(result?.purls).toEqual(["pkg:pypi/flask@1.0"]);
    expect(lines).toEqual([
      "warning 'web/package-lock.json' could not be read - its dependencies are missing from the SBOM",
    ]);
  });

  it("fails with the error of cdxgen, without paths of the machine", async ({ expect }) => {
    const { code, lines } = await sbomOf({ files: { "Cargo.lock": "{{{ no toml", "Cargo.toml": "{{{ no toml" } });
    expect(code).toBe("SBOM_FAILED");
    expect(lines[0]).toMatch(/^error SBOM generation failed: TomlError: Unknown character/);
    expect(lines.join()).not.toContain(folder);
  });

  it("fails if it takes too long", async ({ expect }) => {
    const { code, lines } = await sbomOf({ copy: SAMPLE, sbomMs: 100 });
    expect(code).toBe("SBOM_TIMEOUT");
    expect(lines[0]).toBe("error SBOM generation timed out - the repository may be too large or complex");
  });

  it("starts no program of the repository and writes nothing outside the scratch directory", async ({ expect }) => {
    const loot = path.join(folder, "loot");
    const script = `#!/bin/sh\necho taken >> ${loot}\n`;
    const python = `open(${JSON.stringify(loot)}, "w").write("taken")\n`;
    const programs = [
      "gradlew",
      "mvnw",
      "go",
      "pip",
      "python",
      "python3",
      "npm",
      "cargo",
      "mix",
      "bundle",
      "composer",
      "sbt",
    ];
    const files = Object.fromEntries([
      ...programs.map((name) => [name, script]),
      ["build.gradle", `"touch ${loot}".execute()\n`],
      [
        "pom.xml",
        "<project><modelVersion>4.0.0</modelVersion><groupId>a</groupId><artifactId>b</artifactId><version>1</version></project>",
      ],
      ["setup.py", python],
      ["conanfile.py", python],
      ["mix.exs", `File.write("${loot}", "taken")\n`],
      ["x.gemspec", `File.write("${loot}", "taken")\n`],
      ["package.json", `{"name":"a","version":"1.0.0","scripts":{"preinstall":"touch ${loot}"}}`],
      [".npmrc", `cache=${loot}\n`],
      ["go.mod", "module a\n\ngo 1.19\n"],
      ["requirements.txt", "flask==1.0\n"],
    ]);
    const { result } = await sbomOf({ files });
    expect(result?.purls).toContain("pkg:pypi/flask@1.0");
    expect(fs.existsSync(loot)).toBe(false);
    expect(fs.readdirSync(folder)).toEqual(["scratch"]);
  });
});

describe("the output of cdxgen", () => {
  const source = "/scratch/job/source";
  it("counts if it names a file of the checkout", ({ expect }) => {
    const output = [
      `Unable to parse ${source}/a/package-lock.json without legacy peer dependencies. Retrying ...`,
      `Unable to parse ${source}/a b/package-lock.json in legacy and non-legacy mode. The resulting SBOM would be incomplete.`,
      `Unable to parse the pnpm lock file ${source}/pnpm-lock.yaml.`,
      `Error while parsing the lock file ${source}/poetry.lock. TomlError: Unknown character`,
      `\u001b[31mInvalid composer.lock file: ${source}/composer.lock\u001b[0m`,
      "Unable to parse /etc/passwd",
      `Unable to parse ${source}/../../other/package-lock.json`,
    ].join("\n");
    expect(unreadableFiles(output, source)).toEqual([
      "a b/package-lock.json",
      "pnpm-lock.yaml",
      "poetry.lock",
      "composer.lock",
    ]);
  });

  it("is shortened to one line without paths of the machine", ({ expect }) => {
    const output =
      "(node:1) Warning: x\n/usr/lib/app/node_modules/x/parser.js:297\n  throw y\n\nTypeError: no /usr/lib/x/y.js in /scratch/job/source/a.toml\n  at z";
    expect(crashLine(output, "/scratch/job")).toBe("TypeError: no y.js in source/a.toml");
    expect(crashLine("\n\nkilled\n", "/scratch/job")).toBe("killed");
    expect(crashLine("", "/scratch/job")).toBeUndefined();
    expect(crashLine(`Error: ${"x".repeat(5000)}`, "/scratch/job")).toHaveLength(300);
  });
});

describe("tools", () => {
  it("are found on a PATH in order, and never in the current directory", async ({ expect }) => {
    const [first, second] = ["one", "two"].map((name) => path.join(folder, "tools", name));
    for (const directory of [first!, second!]) fs.mkdirSync(directory, { recursive: true });
    fs.mkdirSync(path.join(first!, "semgrep"));
    fs.writeFileSync(path.join(second!, "semgrep"), "", { mode: 0o755 });
    fs.writeFileSync(path.join(second!, "gitleaks"), "", { mode: 0o644 });
    const searchPath = [".", "", "bin", first, second].join(path.delimiter);
    expect(await findTool("semgrep", searchPath)).toBe(path.join(second!, "semgrep"));
    expect(await findTool("gitleaks", searchPath)).toBeUndefined();
    expect(await findTool("package.json", searchPath)).toBeUndefined();
    fs.rmSync(path.join(folder, "tools"), { recursive: true });
  });

  it("of the package exist", async ({ expect }) => {
    for (const name of ["cdxgen", "secretlint", "ast-grep"] as const) {
      expect(fs.existsSync((await packagedTool(name)) ?? name)).toBe(true);
    }
  });
});
