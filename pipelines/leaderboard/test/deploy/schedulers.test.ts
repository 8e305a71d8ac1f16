// deploy/schedulers.sh against a fake gcloud, which records every call, reads secrets from its input, and keeps what was created.
import fs from "node:fs";
import os from "node:os";
import path from "node:path";
import { afterAll, describe, expect, it } from "vitest";
import { runSandboxed } from "../../../../test/support/processes/sandboxed-shell.ts";
import { readCloudRunJob, wrongInCloudRunJob } from "../../../../test/support/providers/schemas/cloud-run-job.ts";
import { undocumented } from "../../../kit/test/support/deploy.ts";

const SCRIPT = path.resolve(import.meta.dirname, "../../deploy/schedulers.sh");
const IMAGE = "us-central1-docker.pkg.dev/acme-prod/leaderboard/leaderboard:v1";
const base = fs.realpathSync(fs.mkdtempSync(path.join(os.tmpdir(), "stillwake-leaderboard-schedulers-")));
const SECRETS = {
  WORKER_DATABASE_URL: "geheim-worker",
  CODE_DATABASE_URL: "geheim-code",
  LEADERBOARD_GITHUB_TOKEN: "geheim-token",
};
/** Calls that only read. */
const reads =
  /^(auth list|projects describe|iam service-accounts describe|secrets (versions )?(describe|access)|(run|scheduler) jobs describe)\b/;

afterAll(() => fs.rmSync(base, { recursive: true, force: true }));

describe("schedulers.sh", () => {
  it("the first run creates accounts, secrets, both jobs and both schedules", () => {
    const result = schedulers();
    expect(result.status, result.stderr).toBe(0);
    expect(result.created("iam service-accounts create")).toEqual([
      "leaderboard-commits",
      "leaderboard-users",
      "leaderboard-clock",
    ]);
    expect(result.secrets).toEqual({
      "leaderboard-worker-database-url": "geheim-worker",
      "leaderboard-code-database-url": "geheim-code",
      "leaderboard-github-token": "geheim-token",
    });
    for (const name of ["commits", "users"] as const) {
      const job = readCloudRunJob(result.job(name));
      expect(wrongInCloudRunJob(job)).toEqual([]);
      const { serviceAccountName, containers } = job.spec.template.spec.template.spec;
      expect(serviceAccountName).toBe(`leaderboard-${name}@acme-prod.iam.gserviceaccount.com`);
      expect(containers[0].image).toBe(IMAGE);
    }
    expect(result.calls.filter((call) => call.startsWith("scheduler jobs create http"))).toEqual(
      [
        ["leaderboard-commits", "*/5 * * * *"],
        ["leaderboard-users", "0 */4 * * *"],
      ].map(
        ([job, cron]) =>
          `scheduler jobs create http ${job} --location us-central1 --schedule ${cron} --time-zone Etc/UTC --uri https://run.googleapis.com/v2/projects/acme-prod/locations/us-central1/jobs/${job}:run --http-method POST --oauth-service-account-email leaderboard-clock@acme-prod.iam.gserviceaccount.com --max-retry-attempts 0 --attempt-deadline 60s --project acme-prod`,
      ),
    );
    expect(result.stdout).toContain("Done: commits at */5 * * * *, users at 0 */4 * * * (Etc/UTC)");
  });

  it("each account has the least rights it needs: to read its secrets, or to start these two jobs", () => {
    const { calls } = schedulers();
    const granted = calls.flatMap((call) => {
      const [, resource, role, account] =
        /add-iam-policy-binding (\S+) .*--role (\S+) --member serviceAccount:(\S+)@acme-prod\./.exec(call) ?? [];
      return resource ? [`${account} ${role!.replace("roles/", "")} ${resource}`] : [];
    });
    expect(granted).toEqual([
      "leaderboard-commits secretmanager.secretAccessor leaderboard-worker-database-url",
      "leaderboard-users secretmanager.secretAccessor leaderboard-worker-database-url",
      "leaderboard-commits secretmanager.secretAccessor leaderboard-code-database-url",
      "leaderboard-users secretmanager.secretAccessor leaderboard-code-database-url",
      "leaderboard-users secretmanager.secretAccessor leaderboard-github-token",
      "leaderboard-clock run.invoker leaderboard-commits",
      "leaderboard-clock run.invoker leaderboard-users",
    ]);
    expect(calls.join("\n")).not.toMatch(
      /projects add-iam-policy-binding|roles\/(owner|editor|run\.(admin|developer))/,
    );
  });

  it("no secret is an argument or printed", () => {
    const result = schedulers();
    expect(result.calls.join("\n") + result.stdout + result.stderr).not.toContain("geheim");
  });

  it("each job registers its pipeline before the schedules are set; if that fails, they are not changed", () => {
    const { calls } = schedulers();
    const [first, second] = calls.filter((call) => call.startsWith("run jobs execute"));
    expect(first).toMatch(
      /^run jobs execute leaderboard-commits .*--wait --args=dist\/cli\/index\.js,register,--pipelines,pipelines\/leaderboard\/dist\/commits\/pipeline\.js /,
    );
    expect(second).toMatch(/^run jobs execute leaderboard-users .*dist\/users\/pipeline\.js /);
    expect(calls.indexOf(second!)).toBeLessThan(calls.findIndex((call) => call.startsWith("scheduler")));
    const result = schedulers({ fail: "run jobs execute leaderboard-users" });
    expect(result.status).toBe(1);
    expect(result.stderr).toMatch(
      /leaderboard-users fails to start; the schedules were not changed.*executions list --job leaderboard-users/,
    );
    expect(result.calls.filter((call) => call.startsWith("scheduler"))).toEqual([]);
  });

  it("a second run with an empty environment keeps secrets and image, and applies new times", () => {
    const first = schedulers();
    const again = schedulers({
      env: {},
      args: ["--commits", "*/15 * * * *", "--users", "0 * * * *"],
      image: undefined,
      state: first.state,
    });
    expect(again.status, again.stderr).toBe(0);
    expect(again.calls.filter((call) => /\bcreate\b|versions (add|access)/.test(call))).toEqual([]);
    expect(again.secrets).toEqual(first.secrets);
    expect(again.job("commits")).toBe(first.job("commits"));
    expect(again.calls.filter((call) => call.startsWith("scheduler jobs update http"))).toEqual([
      expect.stringContaining("leaderboard-commits --location us-central1 --schedule */15 * * * * "),
      expect.stringContaining("leaderboard-users --location us-central1 --schedule 0 * * * * "),
    ]);
  });

  it("only a changed secret gets a new version", () => {
    const { state } = schedulers();
    expect(schedulers({ state }).calls.filter((call) => call.startsWith("secrets versions add"))).toEqual([]);
    const changed = schedulers({ state, env: { LEADERBOARD_GITHUB_TOKEN: "geheim-new" } });
    expect(changed.calls.filter((call) => call.startsWith("secrets versions add"))).toEqual([
      "secrets versions add leaderboard-github-token --data-file=- --project acme-prod",
    ]);
    expect(changed.secrets["leaderboard-github-token"]).toBe("geheim-new");
  });

  it("--dry-run changes nothing and prints what would be done, before and after the first run", () => {
    const result = schedulers({ args: ["--dry-run"] });
    expect(result.status, result.stderr).toBe(0);
    expect(result.calls.filter((call) => !reads.test(call))).toEqual([]);
    expect(result.secrets).toEqual({});
    expect(result.stdout).toMatch(
      /would run: gcloud iam service-accounts create leaderboard-commits[\s\S]*would set leaderboard-github-token to a new value[\s\S]*would create or update leaderboard-users from users\.job\.yaml[\s\S]*would run: gcloud scheduler jobs create http leaderboard-commits[\s\S]*Nothing was changed\n$/,
    );
    expect(result.stdout).not.toContain("geheim");
    const { state } = schedulers();
    const later = schedulers({ args: ["--dry-run"], env: {}, image: undefined, state });
    expect(later.status, later.stderr).toBe(0);
    expect(later.calls.filter((call) => !reads.test(call))).toEqual([]);
    expect(later.stdout).toMatch(/leaderboard-clock exists[\s\S]*would run: gcloud scheduler jobs update http/);
  });

  it("reports all missing values at once, before the first change", () => {
    const result = schedulers({ env: { WORKER_DATABASE_URL: "geheim" }, image: undefined });
    expect(result.status).toBe(1);
    expect(result.stderr.match(/missing: \S+/g)).toEqual(
      ["--image", "CODE_DATABASE_URL", "LEADERBOARD_GITHUB_TOKEN"].map((name) => `missing: ${name}`),
    );
    expect(result.calls.filter((call) => !reads.test(call))).toEqual([]);
  });

  it("refuses the same login for workers and pipeline code", () => {
    const result = schedulers({ env: { ...SECRETS, CODE_DATABASE_URL: "geheim-worker" } });
    expect(result.status).toBe(1);
    expect(result.stderr).toContain("missing: CODE_DATABASE_URL (must differ from WORKER_DATABASE_URL");
    expect(result.calls.filter((call) => !reads.test(call))).toEqual([]);
  });

  it("retries to grant access while Google does not know a new account", () => {
    const result = schedulers({ failOnce: "secrets add-iam-policy-binding leaderboard-github-token" });
    expect(result.status, result.stderr).toBe(0);
    expect(
      result.calls.filter((call) => call.startsWith("secrets add-iam-policy-binding leaderboard-github")),
    ).toHaveLength(2);
  });

  it.each([
    [
      "gcloud is missing",
      { without: true },
      /gcloud is not installed: https:\/\/cloud\.google\.com\/sdk\/docs\/install/,
    ],
    ["gcloud is not logged in", { fail: "auth list" }, /gcloud is not logged in: gcloud auth login/],
    [
      "the account has no access to the project",
      { fail: "projects describe" },
      /me@example\.com has no access to the project "acme-prod": see gcloud projects list/,
    ],
    [
      "access cannot be granted",
      { fail: "secrets add-iam-policy-binding" },
      /cannot grant leaderboard-commits access to leaderboard-worker-database-url; Google's message is above/,
    ],
    ["a job is refused", { fail: "run jobs replace" }, /refused by the test/],
  ] as const)("if %s, it stops with a remedy", (_case, problem, message) => {
    const result = schedulers(problem);
    expect(result.status).toBe(1);
    expect(result.stderr).toMatch(message);
    expect(result.calls.filter((call) => call.startsWith("scheduler"))).toEqual([]);
  });

  it.each([
    [["--project", "Acme Prod"], /--project "Acme Prod": use the project id/],
    [["--image", "acme/board:latest"], /--image "acme\/board:latest": use a full name with a unique tag/],
    [["--image", "acme/board"], /a unique tag/],
    [["--image", "a/b:v1|e id"], /a unique tag/],
    [["--commits", "hourly"], /"hourly" is not a schedule; use five cron fields/],
    [["--users", "0 * * *"], /is not a schedule/],
    [["--region"], /--region needs a value/],
    [["--zone", "x"], /unknown option "--zone"/],
  ])("refuses %j before the first call", (args, message) => {
    const result = schedulers({ args });
    expect(result).toMatchObject({ status: 2, calls: [] });
    expect(result.stderr).toMatch(message);
  });

  it("requires --project", () => {
    const result = schedulers({ project: undefined });
    expect(result).toMatchObject({ status: 2, calls: [] });
    expect(result.stderr).toContain("--project <id> is required");
  });

  it("--help names every flag and variable that it reads", () => {
    const { stdout, status } = schedulers({ args: ["--help"] });
    expect(status).toBe(0);
    expect(undocumented(fs.readFileSync(SCRIPT, "utf8"), stdout)).toEqual([]);
  });
});

interface Call {
  args?: readonly string[];
  env?: Record<string, string>;
  project?: string | undefined;
  image?: string | undefined;
  /** The state folder of an earlier call. */
  state?: string;
  /** Prefix of the gcloud calls that fail. */
  fail?: string;
  failOnce?: string;
  without?: boolean;
}

function schedulers({ args = [], env = SECRETS, fail = "", failOnce = "", without = false, ...options }: Call = {}) {
  const state = options.state ?? fs.mkdtempSync(path.join(base, "google-"));
  const project = "project" in options ? options.project : "acme-prod";
  const image = "image" in options ? options.image : IMAGE;
  fs.rmSync(path.join(state, "calls"), { force: true });
  const { lines, ...result } = runSandboxed(SCRIPT, {
    // A later flag overrides an earlier one.
    args: [...(project ? ["--project", project] : []), ...(image ? ["--image", image] : []), ...args],
    env: { POLL_SECONDS: "0", FAIL: fail, FAIL_ONCE: failOnce, ...env },
    programs: without ? {} : { gcloud: fakeGcloud },
    state,
  });
  const calls = lines("calls");
  return {
    ...result,
    state,
    calls,
    created: (prefix: string) =>
      calls.flatMap((call) => (call.startsWith(`${prefix} `) ? [call.slice(prefix.length + 1).split(" ")[0]!] : [])),
    job: (name: string) => fs.readFileSync(path.join(state, `job-leaderboard-${name}`), "utf8"),
    secrets: Object.fromEntries(
      fs
        .readdirSync(state)
        .filter((name) => name.startsWith("secret-"))
        .map((name) => [name.slice("secret-".length), fs.readFileSync(path.join(state, name), "utf8")]),
    ),
  };
}

/** Like Google, it refuses to create something twice and to change something that does not exist. */
const fakeGcloud = `#!/usr/bin/env bash
set -eu
printf '%s\\n' "$*" >>"$STATE/calls"
refuse() { echo "ERROR: $1" >&2; exit 1; }
if [[ -n "$FAIL" && "$*" == "$FAIL"* ]]; then refuse "refused by the test"; fi
if [[ -n "$FAIL_ONCE" && "$*" == "$FAIL_ONCE"* && ! -e "$STATE/failed" ]]; then touch "$STATE/failed"; refuse "does not exist"; fi
has() { [[ -e "$STATE/$1" ]]; }
need() { has "$1" || refuse "NOT_FOUND $1"; }
make() { if has "$1"; then refuse "ALREADY_EXISTS $1"; fi; touch "$STATE/$1"; }
case "$*" in
  "auth list"*) echo me@example.com ;;
  "projects describe"* | "services enable"*) ;;
  "iam service-accounts describe"*) need "account-\${4%%@*}" ;;
  "iam service-accounts create"*) make "account-$4" ;;
  "secrets versions describe latest --secret"* | "secrets versions access latest --secret"*)
    [[ -s "$STATE/secret-$6" ]] || refuse NOT_FOUND
    [[ "$3" == describe ]] || cat "$STATE/secret-$6"
    ;;
  "secrets versions add"*) need "secret-$4"; cat >"$STATE/secret-$4" ;;
  "secrets describe"*) need "secret-$3" ;;
  "secrets create"*) make "secret-$3" ;;
  "secrets add-iam-policy-binding"*) need "secret-$3"; for arg in "$@"; do [[ "$arg" != serviceAccount:* ]] || { arg="\${arg#serviceAccount:}"; need "account-\${arg%%@*}"; }; done ;;
  "run jobs replace"*) cp "$4" "$STATE/job-$(sed -n 's/^  name: //p' "$4")" ;;
  "run jobs describe"*) need "job-$4"; sed -n 's/.* image: //p' "$STATE/job-$4" ;;
  "run jobs execute"* | "run jobs add-iam-policy-binding"*) need "job-$4" ;;
  "scheduler jobs describe"*) need "clock-$4" ;;
  "scheduler jobs create http"*) make "clock-$5" ;;
  "scheduler jobs update http"*) need "clock-$5" ;;
  *) refuse "unknown: $*" ;;
esac
`;
