// The deploy files that the example systems share. What is specific to a system is checked in its own test/deploy.
import { spawnSync } from "node:child_process";
import fs from "node:fs";
import path from "node:path";
import pg from "pg";
import { describe, expect, it, onTestFinished } from "vitest";
import { freshDatabase } from "../../../test/support/database/database.ts";
import { ROOT } from "../../../test/support/processes/build.ts";
import { checkDockerfile, checkDockerignore } from "../../../test/support/providers/deploy-files.ts";
import { DOCKERFILE, readLoginSql, SHARED_DEPLOY, stageOf } from "./support/deploy.ts";

const dockerfile = fs.readFileSync(DOCKERFILE, "utf8");

describe("the Dockerfile", () => {
  it("pins its base image and installed versions, and passes the linter", () => {
    expect(checkDockerfile(DOCKERFILE)).toEqual([]);
  });

  it("has an unprivileged target per system that receives SIGTERM and contains only its production packages", () => {
    for (const system of ["extraction", "leaderboard", "clip"]) {
      const target = stageOf(system);
      for (const line of [/^USER 1000:1000$/m, /^STOPSIGNAL SIGTERM$/m, /^ENTRYPOINT \[/m])
        expect(target).toMatch(line);
      expect(stageOf(`${system}-packages`)).toContain(
        `npm ci --omit=dev --workspace @stillwake/${system} --include-workspace-root --ignore-scripts`,
      );
    }
  });

  it("copies files that exist, and for the build the package.json of every workspace", () => {
    const copied = [...dockerfile.matchAll(/^COPY (?:--from=build )?([^-].*) \S+$/gm)]
      .flatMap(([, names]) => names!.split(" "))
      .map((name) => name.replace(/^\/app\//, ""))
      .filter((name) => name !== "." && !/(^|\/)dist$/.test(name));
    expect(copied).toEqual(
      expect.arrayContaining(["pipelines/extraction/tables.sql", "pipelines/leaderboard/tables.sql"]),
    );
    expect(copied.filter((name) => !fs.existsSync(path.join(ROOT, name)))).toEqual([]);
    const { workspaces } = JSON.parse(fs.readFileSync(path.join(ROOT, "package.json"), "utf8")) as {
      workspaces: string[];
    };
    const needed = workspaces
      .flatMap((name) =>
        name.endsWith("/*")
          ? fs.readdirSync(path.join(ROOT, name.slice(0, -2))).map((entry) => `${name.slice(0, -2)}/${entry}`)
          : [name],
      )
      .map((name) => `${name}/package.json`)
      .filter((name) => fs.existsSync(path.join(ROOT, name)));
    expect(needed.filter((name) => !stageOf("manifests").includes(`COPY ${name} `))).toEqual([]);
  });

  it("ignores everything that is not on the allow list", () => {
    expect(checkDockerignore(`${DOCKERFILE}.dockerignore`)).toEqual([]);
  });
});

it("bash parses prologue.sh", () => {
  expect(spawnSync("bash", ["-n", path.join(SHARED_DEPLOY, "prologue.sh")]).status).toBe(0);
});

describe("login.sql", () => {
  it("names the missing roles and how to create them", async () => {
    const { url } = await freshDatabase();
    const client = new pg.Client(url);
    await client.connect();
    onTestFinished(() => client.end());
    await expect(client.query(readLoginSql("unknown"))).rejects.toMatchObject({
      message: "Missing roles: unknown_api, unknown_pipeline",
      hint: expect.stringContaining("pipelines/unknown/dist/server.js --migrate"),
    });
  });
});
