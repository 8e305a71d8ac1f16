// The files of deploy/: Fly's configuration, the rights of the logins, and the settings of the worker.
import fs from "node:fs";
import path from "node:path";
import { parse as parseToml } from "smol-toml";
import { describe, expect, it } from "vitest";
import { flyKeys } from "../../../../test/support/providers/deploy-files.ts";
import { checkLogins, commandOf, stageOf } from "../../../kit/test/support/deploy.ts";
import { migrate } from "../../src/app.ts";
import { readWorkerOptions } from "../../src/worker-settings.ts";

const DEPLOY = path.resolve(import.meta.dirname, "../../deploy");
const text = (name: string) => fs.readFileSync(path.join(DEPLOY, name), "utf8");

describe("the files", () => {
  it.each(["fly.toml", "fly.api.toml"])("%s has only known keys, and stops by SIGTERM", (name) => {
    const toml = parseToml(text(name)) as { kill_signal: string; processes: object; vm: { processes: string[] }[] };
    expect(Object.keys(toml).filter((key) => !flyKeys[""].includes(key))).toEqual([]);
    expect(toml.kill_signal).toBe("SIGTERM");
    expect(toml.vm.flatMap(({ processes }) => processes)).toEqual(Object.keys(toml.processes));
  });

  it("fly.toml has no service, and the command of the image", () => {
    const toml = parseToml(text("fly.toml"));
    expect(toml).not.toHaveProperty("http_service");
    const command = commandOf(stageOf("clip"));
    expect((toml.processes as { clip: string }).clip).toBe(command.slice(command.indexOf("node") + 1).join(" "));
  });

  it("no file contains a secret", () => {
    for (const name of fs.readdirSync(DEPLOY)) {
      expect(text(name), name).not.toMatch(/postgres(ql)?:\/\/|fm2_|FlyV1|BEGIN .*KEY/);
    }
  });
});

it("login.sql: pipeline code reads no uploads and creates no clips, and the worker reads no table", async () => {
  await checkLogins("clip", migrate, async (rights) => {
    expect(await rights("clip_server", "clip.clips")).toEqual(["select", "insert", "update", "delete"]);
    expect(await rights("clip_code", "clip.clips")).toEqual(["select", "update"]);
    for (const table of ["clip.uploads", "stillwake.jobs"]) {
      expect(await rights("clip_code", table), table).not.toContain("select");
    }
    for (const table of ["clip.clips", "clip.uploads", "stillwake.jobs"]) {
      expect(await rights("clip_worker", table), table).toEqual([]);
    }
  });
});

describe("the settings of the worker", () => {
  it("have the names of the requirements, and its defaults where they are not set", () => {
    expect(readWorkerOptions({})).toEqual({});
    const all = { MAX_CONCURRENCY: "3", LEASE_TIMEOUT_SEC: "60", HEARTBEAT_INTERVAL_SEC: "20", SCRATCH_DIR: "/data" };
    expect(readWorkerOptions({ ...all, RECOVERY_SCAN_INTERVAL_SEC: "30" })).toEqual({
      slots: 3,
      lease: "60s",
      pollWithHints: "30s",
      scratch: "/data",
    });
    expect(readWorkerOptions({ HEARTBEAT_INTERVAL_SEC: "10" })).toEqual({ lease: "30s" });
  });

  it.each([
    [{ MAX_CONCURRENCY: "2.5" }, 'MAX_CONCURRENCY is "2.5" but must be a whole number above 0'],
    [{ LEASE_TIMEOUT_SEC: "soon" }, 'LEASE_TIMEOUT_SEC is "soon" but must be a number above 0'],
    [{ LEASE_TIMEOUT_SEC: "10", HEARTBEAT_INTERVAL_SEC: "9" }, "HEARTBEAT_INTERVAL_SEC is 9 but must be at most half"],
  ])("%j is refused", (env, message) => {
    expect(() => readWorkerOptions(env)).toThrow(message);
  });
});
