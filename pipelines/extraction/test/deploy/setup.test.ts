// deploy/setup.sh, run against a fly that only remembers: every call is recorded, secrets come by its input, and the pool appears as an orchestrator makes it.
import { spawnSync } from "node:child_process";
import fs from "node:fs";
import os from "node:os";
import path from "node:path";
import { afterAll, describe, expect, it } from "vitest";

const DEPLOY = path.resolve(import.meta.dirname, "../../deploy");
const base = fs.realpathSync(fs.mkdtempSync(path.join(os.tmpdir(), "stillwake-extraction-setup-")));
const script = fs.readFileSync(path.join(DEPLOY, "setup.sh"), "utf8");

afterAll(() => fs.rmSync(base, { recursive: true, force: true }));

describe("setup.sh", () => {
  it("makes both apps, gives each its own secrets, builds one image, and waits until the orchestrator has the pool", () => {
    const told = setup();
    expect(told.status, told.stderr).toBe(0);
    expect(told.calls.filter((call) => call.startsWith("apps create"))).toEqual([
      "apps create acme --org personal",
      "apps create acme-workers --org personal",
    ]);
    expect(told.secrets.acme).toEqual({
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
    expect(told.secrets["acme-workers"]).toEqual({
      STILLWAKE_DATABASE_URL: "geheim-worker",
      EXTRACTION_DATABASE_URL: "geheim-code",
      STILLWAKE_STORE: "s3://geheim/x",
      STILLWAKE_STORE_ACCESS_KEY_ID: "geheim-id",
      STILLWAKE_STORE_SECRET_ACCESS_KEY: "geheim-key",
      STILLWAKE_SEAL_KEYS: told.secrets.acme!.STILLWAKE_SEAL_KEYS,
      EXTRACTION_GITHUB_APP_ID: "12345",
      EXTRACTION_GITHUB_APP_KEY: Buffer.from("one\ntwo\n").toString("base64"),
    });
    const [built, deployed] = told.calls.filter((call) => call.startsWith("deploy"));
    expect(built).toMatch(/fly\.toml --app acme-workers .*--build-only --push --image-label v\d{8}-\d{6}$/);
    const label = /v\d{8}-\d{6}$/.exec(built!)![0];
    expect(deployed).toContain(`--image registry.fly.io/acme-workers:${label} `);
    expect(deployed).toMatch(
      /EXTRACTION_FLY_APP=acme-workers .*EXTRACTION_WARM_MACHINES=3 .*EXTRACTION_MAX_MACHINES=5/,
    );
    // Nobody but the orchestrator makes a machine of the pool.
    expect(
      told.calls.filter((call) =>
        /^(scale|machine (run|clone|create|stop)).*acme-workers/.test(call.replace(/registry\S+/, "")),
      ),
    ).toEqual([]);
    expect(told.calls.filter((call) => call === "machine list --app acme-workers --json").length).toBeGreaterThan(1);
    expect(told.stdout).toContain("3 are there, stopped");
    expect(told.calls.filter((call) => call.startsWith("machine run"))).toEqual([
      expect.stringMatching(
        /--schedule hourly .*STILLWAKE_POKE_URL=https:\/\/acme\.fly\.dev\/stillwake\/v1\/poke -- dist\/cli\/index\.js watchdog$/,
      ),
    ]);
  });

  it("S40, S41: no secret is an argument or printed, and the token is the workers' app's alone, with an end, in the app that is asked", () => {
    const told = setup();
    expect(told.calls.join("\n")).not.toMatch(/geheim|a token|k1:/);
    expect(told.stdout + told.stderr).not.toMatch(/geheim|a token for|k1:/);
    expect(told.calls.filter((call) => call.startsWith("tokens"))).toEqual([
      "tokens create deploy --app acme-workers --name stillwake-orchestrator --expiry 2160h",
    ]);
    expect(told.secrets["acme-workers"]).not.toHaveProperty("FLY_API_TOKEN");
  });

  it("run again with nothing in the environment, it keeps what is there and rolls out the code", () => {
    const first = setup();
    const again = setup({ env: {}, state: first.state });
    expect(again.status, again.stderr).toBe(0);
    expect(again.calls.filter((call) => /apps create|tokens create|secrets import/.test(call))).toEqual([]);
    expect(again.secrets).toEqual(first.secrets);
    expect(again.calls.filter((call) => call.startsWith("deploy"))).toHaveLength(2);
    expect(again.calls.filter((call) => call.startsWith("machine destroy"))).toEqual([
      "machine destroy 148e --app acme --force",
    ]);
    // One secret anew: that one is set, in both apps, and nothing else.
    const changed = setup({ env: { STORE: "s3://other" }, state: first.state });
    expect(changed.secrets.acme).toEqual({ ...first.secrets.acme, STILLWAKE_STORE: "s3://other" });
    expect(changed.calls.filter((call) => call.startsWith("secrets import"))).toHaveLength(2);
  });

  it("--dry-run changes nothing, and says what would be done", () => {
    const told = setup({ args: ["--dry-run"] });
    expect(told.status, told.stderr).toBe(0);
    expect(told.calls.filter((call) => !/^(auth whoami|status|secrets list|machine list)/.test(call))).toEqual([]);
    expect(told.secrets).toEqual({});
    expect(told.stdout).toMatch(
      /would run: fly apps create acme-workers[\s\S]*acme-workers: STILLWAKE_DATABASE_URL EXTRACTION_DATABASE_URL[\s\S]*--build-only/,
    );
    expect(told.stdout).not.toContain("geheim");
  });

  it("says all that is missing at once, before anything is made", () => {
    const told = setup({ env: { DATABASE_URL: "geheim", STORE: "s3://x" } });
    expect(told.status).toBe(1);
    expect(told.stderr.match(/missing: \S+/g)).toEqual(
      expect.arrayContaining(
        ["WORKER_DATABASE_URL", "CODE_DATABASE_URL", "STORE_ACCESS_KEY_ID", "API_TOKEN"].map(
          (name) => `missing: ${name}`,
        ),
      ),
    );
    expect(told.calls.filter((call) => /create|import|deploy/.test(call))).toEqual([]);
  });

  it("does not make a new key where one app has lost it: jobs would be left that nobody can open", () => {
    const first = setup();
    const known = path.join(first.state, "secrets-acme-workers");
    fs.writeFileSync(known, fs.readFileSync(known, "utf8").replace(/^STILLWAKE_SEAL_KEYS=.*\n/m, ""));
    const again = setup({ state: first.state });
    expect(again.status).toBe(1);
    expect(again.stderr).toContain("missing: SEAL_KEYS (one of the apps has it, and both need the same)");
  });

  it.each([
    ["flyctl is missing", { without: "fly" }, /flyctl is not installed: https/],
    ["nobody is logged in", { fail: "auth whoami" }, /flyctl is not logged in: fly auth login/],
    ["the secrets cannot be listed", { fail: "secrets list", made: true }, /secrets of acme could not be listed/],
    [
      "the pool does not come",
      { fail: "machines" },
      /0 of 3 machines are there after 0 s\. Why is in the log of the orchestrator: fly logs --app acme/,
    ],
  ] as const)("where %s it stops and says what to do", (_case, trouble, message) => {
    const state = "made" in trouble ? setup().state : undefined;
    const told = setup({ ...trouble, ...(state && { state }) });
    expect(told.status).toBe(1);
    expect(told.stderr).toMatch(message);
  });

  it.each([
    [["--warm", "9"], /--warm 9 is more than --max 5/],
    [["--app", "Acme Site"], /--app "Acme Site": use small letters/],
    [["--region"], /--region needs a value/],
    [["--scale", "3"], /"--scale" is not known/],
  ])("refuses %j before it calls anybody", (args, message) => {
    const told = setup({ args });
    expect(told).toMatchObject({ status: 2, calls: [] });
    expect(told.stderr).toMatch(message);
  });

  it("--help names every variable it reads", () => {
    const { stdout } = setup({ args: ["--help"] });
    const read = [...script.matchAll(/\$\{([A-Z_]+):-/g)].map(([, name]) => name!);
    const asked = [...script.matchAll(/^ *secret "\$\w+" \S+ ([A-Z_]+) /gm)].map(([, name]) => name!);
    // How often to look is for these tests.
    for (const name of new Set([...read, ...asked].filter((one) => one !== "POLL_SECONDS")))
      expect(stdout).toContain(name);
  });
});

interface Setup {
  args?: readonly string[];
  env?: Record<string, string>;
  /** What an earlier call has made. */
  state?: string;
  fail?: string;
  without?: string;
}

/** Runs setup.sh against a fly that only remembers. */
function setup({ args = [], env, state = fs.mkdtempSync(path.join(base, "fly-")), fail = "", without }: Setup = {}) {
  const bin = path.join(state, "bin");
  fs.mkdirSync(bin, { recursive: true });
  if (without !== "fly") fs.writeFileSync(path.join(bin, "fly"), fakeFly, { mode: 0o755 });
  fs.rmSync(path.join(state, "calls"), { force: true });
  const key = path.join(base, "app.key");
  fs.writeFileSync(key, "one\ntwo\n");
  const given = env ?? {
    DATABASE_URL: "geheim-server",
    WORKER_DATABASE_URL: "geheim-worker",
    CODE_DATABASE_URL: "geheim-code",
    STORE: "s3://geheim/x",
    STORE_ACCESS_KEY_ID: "geheim-id",
    STORE_SECRET_ACCESS_KEY: "geheim-key",
    API_TOKEN: "geheim-api-geheim-api",
    POKE_TOKEN: "geheim-poke",
    GITHUB_APP_ID: "12345",
    GITHUB_APP_KEY_FILE: key,
  };
  const { status, stdout, stderr } = spawnSync(
    "bash",
    [path.join(DEPLOY, "setup.sh"), ...(args.includes("--app") ? [] : ["--app", "acme"]), ...args],
    {
      cwd: os.tmpdir(),
      encoding: "utf8",
      stdio: ["ignore", "pipe", "pipe"],
      env: {
        PATH: `${bin}:${path.dirname(process.execPath)}:/usr/bin:/bin`,
        STATE: state,
        FAIL: fail,
        POLL_SECONDS: "0.01",
        WAIT_SECONDS: fail === "machines" ? "0" : "60",
        ...given,
      },
    },
  );
  const lines = (name: string) => {
    const file = path.join(state, name);
    return fs.existsSync(file) ? fs.readFileSync(file, "utf8").trimEnd().split("\n") : [];
  };
  const secrets = Object.fromEntries(
    fs
      .readdirSync(state)
      .filter((name) => name.startsWith("secrets-"))
      .map((name) => [
        name.slice("secrets-".length),
        Object.fromEntries(lines(name).map((line) => [line.split("=", 1)[0]!, line.slice(line.indexOf("=") + 1)])),
      ]),
  );
  return { status, stdout, stderr, state, calls: lines("calls"), secrets };
}

/** The machines of the pool are there at the second look: the orchestrator needs a moment. */
const fakeFly = `#!/usr/bin/env bash
set -eu
echo "$*" >>"$STATE/calls"
app=""
for ((at = 1; at < $#; at++)); do
  [[ "\${!at}" == --app ]] && { next=$((at + 1)); app="\${!next}"; }
done
[[ "$1 $2" == "$FAIL" ]] && exit 1
case "$1 $2" in
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
      if [[ "$FAIL" != machines && -e "$STATE/looked" ]]; then
        echo '[{"name":"sw-f1-scan-m1","state":"stopped"},{"name":"sw-f1-scan-m2","state":"stopped"},{"name":"sw-f1-scan-m3","state":"stopped"},{"name":"by-hand","state":"stopped"}]'
      else
        touch "$STATE/looked"
        echo '[{"name":"sw-f1-scan-m1","state":"started"},{"name":"by-hand","state":"stopped"}]'
      fi
    elif [[ -e "$STATE/hourly" ]]; then echo '[{"id":"148e","name":"acme-hourly"}]'
    else echo "[]"
    fi
    ;;
  "machine run") touch "$STATE/hourly" ;;
esac
`;
