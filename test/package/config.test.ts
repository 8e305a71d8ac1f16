// Settings from the environment.
import { describe, expect, it } from "vitest";
import { readConfig } from "../../src/config.ts";

describe("the configuration", () => {
  it("has defaults for everything except the database", () => {
    const defaults = { databaseUrl: undefined, schema: "stillwake", port: 4700, dir: ".stillwake", machine: {} };
    expect(readConfig({})).toEqual(defaults);
  });

  it("prefers STILLWAKE_DATABASE_URL to DATABASE_URL, and treats empty as absent", () => {
    expect(readConfig({ STILLWAKE_DATABASE_URL: "postgres://a", DATABASE_URL: "postgres://b" }).databaseUrl).toBe(
      "postgres://a",
    );
    expect(readConfig({ STILLWAKE_DATABASE_URL: "", DATABASE_URL: "postgres://b" }).databaseUrl).toBe("postgres://b");
    expect(readConfig({ DATABASE_URL: "", STILLWAKE_SCHEMA: "", STILLWAKE_DIR: "", STILLWAKE_PORT: "" })).toEqual(
      readConfig({}),
    );
  });

  it("reads the settings that the orchestrator passes to a machine's worker", () => {
    const env = {
      STILLWAKE_MACHINE: "sw-1-scan-m1",
      STILLWAKE_POOL: "scan",
      STILLWAKE_SLOTS: "2",
      STILLWAKE_IDLE_EXIT: "60s",
      STILLWAKE_MIN_UPTIME: "55s",
      STILLWAKE_GRACE: "30s",
    };
    expect(readConfig(env).machine).toEqual({
      name: "sw-1-scan-m1",
      pool: "scan",
      slots: 2,
      idleExit: "60s",
      minUptime: "55s",
      grace: "30s",
    });
  });

  it("reads schema, port and folder", () => {
    const env = { STILLWAKE_SCHEMA: "jobs", STILLWAKE_PORT: "0", STILLWAKE_DIR: "/data" };
    expect(readConfig(env)).toMatchObject({ schema: "jobs", port: 0, dir: "/data" });
  });

  it.each(["http", "-1", "65536", "1.5", "4700x"])("rejects the port %s, with the allowed range", (port) => {
    expect(() => readConfig({ STILLWAKE_PORT: port })).toThrow(
      expect.objectContaining({
        code: "INVALID_INPUT",
        field: "STILLWAKE_PORT",
        remedy: expect.stringContaining("0 to 65535"),
      }),
    );
  });

  it("is frozen", () => {
    expect(Object.isFrozen(readConfig({}))).toBe(true);
  });
});
