// deploy/setup.sh against a fake fly, which records every call, reads secrets from its input, and lists the machines that
// an orchestrator would create.
import fs from "node:fs";
import os from "node:os";
import path from "node:path";
import { afterAll, describe, expect, it } from "vitest";
import { runSandboxed } from "../../../../test/support/processes/sandboxed-shell.ts";
import { fakeFlyHead } from "../../../../test/support/providers/deploy-files.ts";
import { undocumented } from "../../../kit/test/support/deploy.ts";

const DEPLOY = path.resolve(import.meta.dirname, "../../deploy");
const base = fs.realpathSync(fs.mkdtempSync(path.join(os.tmpdir(), "stillwake-extraction-setup-")));
const script = fs.readFileSync(path.join(DEPLOY, "setup.sh"), "utf8");

afterAll(() => fs.rmSync(base, { recursive: true, force: true }));

describe("setup.sh", () => {
  it("creates both apps with their secrets, builds one image, and waits until the orchestrator has created the pool", () => {
    const result = setup();
    expect(result.status, result.stderr).toBe(0);
    expect(result.calls.filter((call) => call.startsWith("apps create"))).toEqual([
      "apps create acme --org personal",
      "apps create acme-workers --org personal",
    ]);
    expect(result.secrets.acme).toEqual({
      STILLWAKE_DATABASE_URL: "geheim-server",
      STILLWAKE_STORE: "s3://geheim/x",
      STILLWAKE_STORE_ACCESS_KEY_ID: "geheim-id",
      STILLWAKE_STORE_SECRET_ACCESS_KEY: "geheim-key",
      EXTRACTION_API_TOKEN: "geheim-api-geheim-api",
      STILLWAKE_TOKEN: "geheim-poke",
      STILLWAKE_SEAL_KEYS: expect.stringMatching(/^k1:.{44}$/),
      STILLWAKE_SECRET: expect.stringMatching(/^.{44}$/),
      FLY_API_TOKEN: "a token for acme-workers",
    });
    expect(result.secrets["acme-workers"]).toEqual({
      STILLWAKE_DATABASE_URL: "geheim-worker",
      EXTRACTION_DATABASE_URL: "geheim-code",
      STILLWAKE_STORE: "s3://geheim/x",
      STILLWAKE_STORE_ACCESS_KEY_ID: "geheim-id",
      STILLWAKE_STORE_SECRET_ACCESS_KEY: "geheim-key",
      STILLWAKE_SEAL_KEYS: result.secrets.acme!.STILLWAKE_SEAL_KEYS,
      EXTRACTION_GITHUB_APP_ID: "12345",
      EXTRACTION_GITHUB_APP_KEY: Buffer.from("one\ntwo\n").toString("base64"),
    });
    const [built, deployed] = result.calls.filter((call) => call.startsWith("deploy"));
    expect(built).toMatch(/fly\.toml --app acme-workers .*--build-only --push --image-label v\d{8}-\d{6}$/);
    const label = /v\d{8}-\d{6}$/.exec(built!)![0];
    expect(deployed).toContain(`--image registry.fly.io/acme-workers:${label} `);
    expect(deployed).toMatch(
      /EXTRACTION_FLY_APP=acme-workers .*EXTRACTION_WARM_MACHINES=3 .*EXTRACTION_MAX_MACHINES=5/,
    );
    // Only the orchestrator creates machines of the pool.
    expect(
      result.calls.filter((call) =>
        /^(scale|machine (run|clone|create|stop)).*acme-workers/.test(call.replace(/registry\S+/, "")),
      ),
    ).toEqual([]);
    expect(result.calls.filter((call) => call === "machine list --app acme-workers --json").length).toBeGreaterThan(1);
    expect(result.stdout).toContain("3 stopped machines are ready");
    expect(result.calls.filter((call) => call.startsWith("machine run"))).toEqual([
      expect.stringMatching(
        /--schedule hourly .*STILLWAKE_POKE_URL=https:\/\/acme\.fly\.dev\/stillwake\/v1\/poke -- dist\/cli\/index\.js watchdog$/,
      ),
    ]);
  });

  it("no secret is an argument or printed; the token is limited to the workers' app, expires, and is stored in the API's app", () => {
    const result = setup();
    expect(result.calls.join("\n")).not.toMatch(/geheim|a token|k1:/);
    expect(result.stdout + result.stderr).not.toMatch(/geheim|a token for|k1:/);
    expect(result.calls.filter((call) => call.startsWith("tokens"))).toEqual([
      "tokens create deploy --app acme-workers --name stillwake-orchestrator --expiry 2160h",
    ]);
    expect(result.secrets["acme-workers"]).not.toHaveProperty("FLY_API_TOKEN");
  });

  it("a second run with an empty environment keeps everything and rolls out the code", () => {
    const first = setup();
    const again = setup({ env: {}, state: first.state });
    expect(again.status, again.stderr).toBe(0);
    expect(again.calls.filter((call) => /apps create|tokens create|secrets import/.test(call))).toEqual([]);
    expect(again.secrets).toEqual(first.secrets);
    expect(again.calls.filter((call) => call.startsWith("deploy"))).toHaveLength(2);
    expect(again.calls.filter((call) => call.startsWith("machine destroy"))).toEqual([
      "machine destroy 148e --app acme --force",
    ]);
    // One new secret is set in both apps; the others stay.
    const changed = setup({ env: { STORE: "s3://other" }, state: first.state });
    expect(changed.secrets.acme).toEqual({ ...first.secrets.acme, STILLWAKE_STORE: "s3://other" });
    expect(changed.calls.filter((call) => call.startsWith("secrets import"))).toHaveLength(2);
  });

  it("--dry-run changes nothing and prints what would be done", () => {
    const result = setup({ args: ["--dry-run"] });
    expect(result.status, result.stderr).toBe(0);
    expect(result.calls.filter((call) => !/^(auth whoami|status|secrets list|machine list)/.test(call))).toEqual([]);
    expect(result.secrets).toEqual({});
    expect(result.stdout).toMatch(
      /would run: fly apps create acme-workers[\s\S]*acme-workers: STILLWAKE_DATABASE_URL EXTRACTION_DATABASE_URL[\s\S]*--build-only/,
    );
    expect(result.stdout).not.toContain("geheim");
  });

  it("reports all missing values at once, before the first change", () => {
    const result = setup({ env: { DATABASE_URL: "geheim", STORE: "s3://x" } });
    expect(result.status).toBe(1);
    expect(result.stderr.match(/missing: \S+/g)).toEqual(
      expect.arrayContaining(
        ["WORKER_DATABASE_URL", "CODE_DATABASE_URL", "STORE_ACCESS_KEY_ID", "API_TOKEN"].map(
          (name) => `missing: ${name}`,
        ),
      ),
    );
    expect(result.calls.filter((call) => /create|import|deploy/.test(call))).toEqual([]);
  });

  it("does not generate new seal keys if one app still has the old ones: sealed jobs could not be opened", () => {
    const first = setup();
    const known = path.join(first.state, "secrets-acme-workers");
    fs.writeFileSync(known, fs.readFileSync(known, "utf8").replace(/^STILLWAKE_SEAL_KEYS=.*\n/m, ""));
    const again = setup({ state: first.state });
    expect(again.status).toBe(1);
    expect(again.stderr).toContain("missing: SEAL_KEYS (only one of the apps has it, and both need the same)");
  });

  it.each([
    ["flyctl is missing", { without: "fly" }, /flyctl is not installed: https/],
    ["flyctl is not logged in", { fail: "auth whoami" }, /flyctl is not logged in: fly auth login/],
    ["the secrets cannot be listed", { fail: "secrets list", made: true }, /cannot list the secrets of acme/],
    [
      "the pool is not created",
      { fail: "machines" },
      /the pool has 0 of 3 machines after 0 s; see the log of the orchestrator: fly logs --app acme/,
    ],
  ] as const)("if %s, it stops with a remedy", (_case, problem, message) => {
    const state = "made" in problem ? setup().state : undefined;
    const result = setup({ ...problem, ...(state && { state }) });
    expect(result.status).toBe(1);
    expect(result.stderr).toMatch(message);
  });

  it.each([
    [["--warm", "9"], /--warm 9 is more than --max 5/],
    [["--app", "Acme Site"], /--app "Acme Site": use 3 to 42 lowercase letters/],
    [["--region"], /--region needs a value/],
    [["--scale", "3"], /unknown option "--scale"/],
  ])("refuses %j before the first call", (args, message) => {
    const result = setup({ args });
    expect(result).toMatchObject({ status: 2, calls: [] });
    expect(result.stderr).toMatch(message);
  });

  it("--help names every flag and variable that it reads", () => {
    const { stdout } = setup({ args: ["--help"] });
    expect(undocumented(script, stdout)).toEqual([]);
  });
});

interface Setup {
  args?: readonly string[];
  env?: Record<string, string>;
  /** The state folder of an earlier call. */
  state?: string;
  fail?: string;
  without?: string;
}

function setup({ args = [], env, state = fs.mkdtempSync(path.join(base, "fly-")), fail = "", without }: Setup = {}) {
  fs.rmSync(path.join(state, "calls"), { force: true });
  const key = path.join(base, "app.key");
  fs.writeFileSync(key, "one\ntwo\n");
  const { lines, ...result } = runSandboxed(path.join(DEPLOY, "setup.sh"), {
    args: [...(args.includes("--app") ? [] : ["--app", "acme"]), ...args],
    env: {
      FAIL: fail,
      POLL_SECONDS: "0.01",
      WAIT_SECONDS: fail === "machines" ? "0" : "60",
      ...(env ?? secretsFor(key)),
    },
    programs: {
      ...(without !== "fly" && { fly: fakeFly }),
      node: `#!/bin/bash\nexec "${process.execPath}" "$@"\n`,
      openssl: '#!/bin/bash\nexec /usr/bin/openssl "$@"\n',
    },
    state,
  });
  const secrets = Object.fromEntries(
    fs
      .readdirSync(state)
      .filter((name) => name.startsWith("secrets-"))
      .map((name) => [
        name.slice("secrets-".length),
        Object.fromEntries(lines(name).map((line) => [line.split("=", 1)[0]!, line.slice(line.indexOf("=") + 1)])),
      ]),
  );
  return { ...result, state, calls: lines("calls"), secrets };
}

function secretsFor(keyFile: string) {
  return {
    DATABASE_URL: "geheim-server",
    WORKER_DATABASE_URL: "geheim-worker",
    CODE_DATABASE_URL: "geheim-code",
    STORE: "s3://geheim/x",
    STORE_ACCESS_KEY_ID: "geheim-id",
    STORE_SECRET_ACCESS_KEY: "geheim-key",
    API_TOKEN: "geheim-api-geheim-api",
    POKE_TOKEN: "geheim-poke",
    GITHUB_APP_ID: "12345",
    GITHUB_APP_KEY_FILE: keyFile,
  };
}

/** Lists the machines of the pool from the second call on, as if the orchestrator had just created them. */
const fakeFly = `${fakeFlyHead}case "$1 $2" in
  "status --app") [[ -e "$STATE/app-$app" ]] ;;
  "apps create") touch "$STATE/app-$3" ;;
  "secrets list")
    names="$(sed 's/=.*//; s/.*/{"Name":"&"}/' "$STATE/secrets-$app" 2>/dev/null | paste -sd , -)"
    echo "[$names]"
    ;;
  "secrets import")
    while IFS= read -r line; do
      touch "$STATE/secrets-$app"
      { grep -v "^\${line%%=*}=" "$STATE/secrets-$app" || true; echo "$line"; } >"$STATE/new"
      mv "$STATE/new" "$STATE/secrets-$app"
    done
    ;;
  "tokens create") echo "a token for $app" ;;
  "machine list")
    if [[ "$app" == *-workers ]]; then
      if [[ "$FAIL" != machines && -e "$STATE/listed" ]]; then
        echo '[{"name":"sw-f1-scan-m1","state":"stopped"},{"name":"sw-f1-scan-m2","state":"stopped"},{"name":"sw-f1-scan-m3","state":"stopped"},{"name":"by-hand","state":"stopped"}]'
      else
        touch "$STATE/listed"
        echo '[{"name":"sw-f1-scan-m1","state":"started"},{"name":"by-hand","state":"stopped"}]'
      fi
    elif [[ -e "$STATE/hourly" ]]; then echo '[{"id":"148e","name":"acme-hourly"}]'
    else echo "[]"
    fi
    ;;
  "machine run") touch "$STATE/hourly" ;;
esac
`;
