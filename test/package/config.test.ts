// Settings from the environment.
import { describe, expect, it } from "vitest";
import { databasePasswords, readConfig, withheldNames } from "../../src/config.ts";

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

describe("the variables that are withheld from pipeline code", () => {
  const url = "postgres://app:a%40very-long-one@db/app";
  const runtime = { databaseUrls: [url], others: ["a-seal-key-of-32-bytes"] };
  const env = {
    PATH: "/bin",
    DATABASE_URL: url,
    PGHOST: "db",
    STILLWAKE_DATABASE_URL: url,
    STILLWAKE_CRASH: "after:one",
    AWS_ACCESS_KEY_ID: "id",
    AWS_REGION: "eu",
    COPY: `url=${url}`,
    PASSWORD: "a@very-long-one",
    KEY: "k1:a-seal-key-of-32-bytes",
  };
  const always = ["STILLWAKE_DATABASE_URL", "AWS_ACCESS_KEY_ID", "KEY"];

  it.each([
    ["by default", {}, always],
    [
      "with DATABASE_URL withheld, also where its login is in another variable",
      { withhold: ["DATABASE_URL"] },
      ["DATABASE_URL", ...always.slice(0, 2), "COPY", "PASSWORD", "KEY"],
    ],
    ["with a pattern", { withhold: ["PG*"] }, ["PGHOST", ...always]],
    ["with names that are passed", { pass: ["KEY", "AWS_*"] }, ["STILLWAKE_DATABASE_URL"]],
    [
      "where the longer pattern decides",
      { pass: ["AWS_*"], withhold: ["AWS_ACCESS*", "AWS_R*"] },
      [...always.slice(0, 2), "AWS_REGION", "KEY"],
    ],
    [
      "where a name decides over a pattern",
      { withhold: ["*"], pass: ["PATH", "AWS_REGION"] },
      Object.keys(env).filter((name) => !["PATH", "AWS_REGION"].includes(name)),
    ],
    ["where both lists have the name", { withhold: ["PATH"], pass: ["PATH"] }, ["PATH", ...always]],
  ])("%s", (_, options, expected) => {
    expect(withheldNames(runtime, options, env)).toEqual(expected);
  });

  it("include the login of the runtime under another name, if DATABASE_URL has another one", () => {
    const other = { ...env, DATABASE_URL: "postgres://code:another@db/app" };
    expect(withheldNames(runtime, {}, other)).toEqual([...always.slice(0, 2), "COPY", "PASSWORD", "KEY"]);
  });

  it("do not include the same login at another address, such as a pooler's", () => {
    const pooled = { DATABASE_URL: url.replace("@db/", "@pooler:6432/"), DIRECT: url };
    expect(withheldNames(runtime, {}, pooled)).toEqual([]);
  });

  it("leave passwords in those that are passed; they are redacted, an ordinary word only inside a URL", () => {
    expect(databasePasswords({ A: url, PGPASSWORD: "pg-password", B: "https://x:not-a-database@y" })).toEqual([
      "a%40very-long-one",
      "a@very-long-one",
      "pg-password",
    ]);
    expect(databasePasswords({ A: "postgresql://postgres:postgres@localhost/app" })).toEqual([":postgres@"]);
  });
});
