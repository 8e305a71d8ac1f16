// deploy/schedulers.sh, run against a gcloud that only remembers: every call is recorded, secrets come by its input, and what is there is told as Google would.
import fs from "node:fs";
import os from "node:os";
import path from "node:path";
import { afterAll, describe, expect, it } from "vitest";
import { runClosed } from "../../../../test/support/processes/sandboxed-shell.ts";
import { readCloudRunJob, wrongInCloudRunJob } from "../../../../test/support/providers/schemas/cloud-run-job.ts";

const SCRIPT = path.resolve(import.meta.dirname, "../../deploy/schedulers.sh");
const IMAGE = "us-central1-docker.pkg.dev/acme-prod/leaderboard/leaderboard:v1";
const base = fs.realpathSync(fs.mkdtempSync(path.join(os.tmpdir(), "stillwake-leaderboard-schedulers-")));
const SECRETS = {
  WORKER_DATABASE_URL: "geheim-worker",
  CODE_DATABASE_URL: "geheim-code",
  LEADERBOARD_GITHUB_TOKEN: "geheim-token",
};
/** What asks and changes nothing. */
const asks =
  /^(auth list|projects describe|iam service-accounts describe|secrets (versions )?(describe|access)|(run|scheduler) jobs describe)\b/;

afterAll(() => fs.rmSync(base, { recursive: true, force: true }));

describe("schedulers.sh", () => {
  it("the first time it makes accounts, secrets, both jobs and both entries of the clock", () => {
    const told = schedulers();
    expect(told.status, told.stderr).toBe(0);
    expect(told.made("iam service-accounts create")).toEqual([
      "leaderboard-commits",
      "leaderboard-users",
      "leaderboard-clock",
    ]);
    expect(told.secrets).toEqual({
      "leaderboard-worker-database-url": "geheim-worker",
      "leaderboard-code-database-url": "geheim-code",
      "leaderboard-github-token": "geheim-token",
    });
    for (const name of ["commits", "users"] as const) {
      const job = readCloudRunJob(told.job(name));
      expect(wrongInCloudRunJob(job)).toEqual([]);
      const { serviceAccountName, containers } = job.spec.template.spec.template.spec;
      expect(serviceAccountName).toBe(`leaderboard-${name}@acme-prod.iam.gserviceaccount.com`);
      expect(containers[0].image).toBe(IMAGE);
    }
    expect(told.calls.filter((call) => call.startsWith("scheduler jobs create http"))).toEqual(
      [
        ["leaderboard-commits", "*/5 * * * *"],
        ["leaderboard-users", "0 */4 * * *"],
      ].map(
        ([job, cron]) =>
          `scheduler jobs create http ${job} --location us-central1 --schedule ${cron} --time-zone Etc/UTC --uri https://run.googleapis.com/v2/projects/acme-prod/locations/us-central1/jobs/${job}:run --http-method POST --oauth-service-account-email leaderboard-clock@acme-prod.iam.gserviceaccount.com --max-retry-attempts 0 --attempt-deadline 60s --project acme-prod`,
      ),
    );
    expect(told.stdout).toContain("Done: commits at */5 * * * *, users at 0 */4 * * * (Etc/UTC)");
  });

  it("S42: each account has what it needs and no more: its secrets to read, or these two jobs to start", () => {
    const { calls } = schedulers();
    const given = calls.flatMap((call) => {
      const [, what, role, who] =
        /add-iam-policy-binding (\S+) .*--role (\S+) --member serviceAccount:(\S+)@acme-prod\./.exec(call) ?? [];
      return what ? [`${who} ${role!.replace("roles/", "")} ${what}`] : [];
    });
    expect(given).toEqual([
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

  it("S40: no secret is an argument or printed", () => {
    const told = schedulers();
    expect(told.calls.join("\n") + told.stdout + told.stderr).not.toContain("geheim");
  });

  it("each job makes its pipeline known before the clock is set, and where it cannot the clock is left as it was", () => {
    const { calls } = schedulers();
    const [first, second] = calls.filter((call) => call.startsWith("run jobs execute"));
    expect(first).toMatch(
      /^run jobs execute leaderboard-commits .*--wait --args=dist\/cli\/index\.js,register,--pipelines,pipelines\/leaderboard\/dist\/commits\/pipeline\.js /,
    );
    expect(second).toMatch(/^run jobs execute leaderboard-users .*dist\/users\/pipeline\.js /);
    expect(calls.indexOf(second!)).toBeLessThan(calls.findIndex((call) => call.startsWith("scheduler")));
    const told = schedulers({ fail: "run jobs execute leaderboard-users" });
    expect(told.status).toBe(1);
    expect(told.stderr).toMatch(
      /leaderboard-users does not run, and the clock was left.*executions list --job leaderboard-users/,
    );
    expect(told.calls.filter((call) => call.startsWith("scheduler"))).toEqual([]);
  });

  it("run again with nothing in the environment, it makes nothing anew, keeps secrets and image, and brings in other times", () => {
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

  it("a value that is the same makes no new version, and one that has changed does", () => {
    const { state } = schedulers();
    expect(schedulers({ state }).calls.filter((call) => call.startsWith("secrets versions add"))).toEqual([]);
    const changed = schedulers({ state, env: { LEADERBOARD_GITHUB_TOKEN: "geheim-new" } });
    expect(changed.calls.filter((call) => call.startsWith("secrets versions add"))).toEqual([
      "secrets versions add leaderboard-github-token --data-file=- --project acme-prod",
    ]);
    expect(changed.secrets["leaderboard-github-token"]).toBe("geheim-new");
  });

  it("--dry-run changes nothing, before and after the first time, and says what would be done", () => {
    const told = schedulers({ args: ["--dry-run"] });
    expect(told.status, told.stderr).toBe(0);
    expect(told.calls.filter((call) => !asks.test(call))).toEqual([]);
    expect(told.secrets).toEqual({});
    expect(told.stdout).toMatch(
      /would run: gcloud iam service-accounts create leaderboard-commits[\s\S]*would give leaderboard-github-token a new value[\s\S]*would make or change leaderboard-users as users\.job\.yaml says[\s\S]*would run: gcloud scheduler jobs create http leaderboard-commits[\s\S]*Nothing was changed\n$/,
    );
    expect(told.stdout).not.toContain("geheim");
    const { state } = schedulers();
    const later = schedulers({ args: ["--dry-run"], env: {}, image: undefined, state });
    expect(later.status, later.stderr).toBe(0);
    expect(later.calls.filter((call) => !asks.test(call))).toEqual([]);
    expect(later.stdout).toMatch(/leaderboard-clock is there[\s\S]*would run: gcloud scheduler jobs update http/);
  });

  it("says all that is missing at once, before anything is made", () => {
    const told = schedulers({ env: { WORKER_DATABASE_URL: "geheim" }, image: undefined });
    expect(told.status).toBe(1);
    expect(told.stderr.match(/missing: \S+/g)).toEqual(
      ["--image", "CODE_DATABASE_URL", "LEADERBOARD_GITHUB_TOKEN"].map((name) => `missing: ${name}`),
    );
    expect(told.calls.filter((call) => !asks.test(call))).toEqual([]);
  });

  it("refuses one login for both: the workers' is kept from the pipelines' code", () => {
    const told = schedulers({ env: { ...SECRETS, CODE_DATABASE_URL: "geheim-worker" } });
    expect(told.status).toBe(1);
    expect(told.stderr).toContain("missing: CODE_DATABASE_URL (a login of its own");
    expect(told.calls.filter((call) => !asks.test(call))).toEqual([]);
  });

  it("gives a right again when the account is too new to be known", () => {
    const told = schedulers({ failOnce: "secrets add-iam-policy-binding leaderboard-github-token" });
    expect(told.status, told.stderr).toBe(0);
    expect(
      told.calls.filter((call) => call.startsWith("secrets add-iam-policy-binding leaderboard-github")),
    ).toHaveLength(2);
  });

  it.each([
    [
      "gcloud is missing",
      { without: true },
      /gcloud is not installed: https:\/\/cloud\.google\.com\/sdk\/docs\/install/,
    ],
    ["nobody is logged in", { fail: "auth list" }, /gcloud is not logged in: gcloud auth login/],
    [
      "the project is not seen",
      { fail: "projects describe" },
      /me@example\.com does not see a project "acme-prod": gcloud projects list/,
    ],
    [
      "a right is not given",
      { fail: "secrets add-iam-policy-binding" },
      /leaderboard-commits was not given its right: what Google says is above/,
    ],
    ["a job is refused", { fail: "run jobs replace" }, /refused by the test/],
  ] as const)("where %s it stops and says what to do", (_case, trouble, message) => {
    const told = schedulers(trouble);
    expect(told.status).toBe(1);
    expect(told.stderr).toMatch(message);
    expect(told.calls.filter((call) => call.startsWith("scheduler"))).toEqual([]);
  });

  it.each([
    [["--project", "Acme Prod"], /--project "Acme Prod": its id/],
    [["--image", "acme/board:latest"], /--image "acme\/board:latest": a whole name with a tag of its own/],
    [["--image", "acme/board"], /a tag of its own/],
    [["--image", "a/b:v1|e id"], /a tag of its own/],
    [["--commits", "hourly"], /"hourly" is no time: five parts/],
    [["--users", "0 * * *"], /is no time/],
    [["--region"], /--region needs a value/],
    [["--zone", "x"], /"--zone" is not known/],
  ])("refuses %j before it calls anybody", (args, message) => {
    const told = schedulers({ args });
    expect(told).toMatchObject({ status: 2, calls: [] });
    expect(told.stderr).toMatch(message);
  });

  it("refuses to guess the project", () => {
    const told = schedulers({ project: undefined });
    expect(told).toMatchObject({ status: 2, calls: [] });
    expect(told.stderr).toContain("no project is named: --project <id>");
  });

  it("--help names every variable and every flag it reads", () => {
    const { stdout, status } = schedulers({ args: ["--help"] });
    expect(status).toBe(0);
    const script = fs.readFileSync(SCRIPT, "utf8");
    const read = [...script.matchAll(/\$\{([A-Z_]+):-/g), ...script.matchAll(/^need \S+ ([A-Z_]+) /gm)].map(
      ([, name]) => name!,
    );
    const flags = [...script.matchAll(/^ {4}(--[\w -]*(?:\| [\w -]+)*)\)/gm)].flatMap(([, names]) =>
      names!.split(" | "),
    );
    // How long to wait is for these tests; -h and --help are what was asked.
    const hidden = ["POLL_SECONDS", "-h", "--help"];
    expect(flags).toContain("--users");
    for (const name of new Set([...read, ...flags].filter((one) => !hidden.includes(one))))
      expect(stdout).toContain(name);
  });
});

interface Call {
  args?: readonly string[];
  env?: Record<string, string>;
  project?: string | undefined;
  image?: string | undefined;
  /** What an earlier call has made. */
  state?: string;
  /** How calls begin that Google refuses. */
  fail?: string;
  failOnce?: string;
  without?: boolean;
}

function schedulers({ args = [], env = SECRETS, fail = "", failOnce = "", without = false, ...given }: Call = {}) {
  const state = given.state ?? fs.mkdtempSync(path.join(base, "google-"));
  const project = "project" in given ? given.project : "acme-prod";
  const image = "image" in given ? given.image : IMAGE;
  fs.rmSync(path.join(state, "calls"), { force: true });
  const { lines, ...ran } = runClosed(SCRIPT, {
    // What comes later counts.
    args: [...(project ? ["--project", project] : []), ...(image ? ["--image", image] : []), ...args],
    env: { POLL_SECONDS: "0", FAIL: fail, FAIL_ONCE: failOnce, ...env },
    programs: without ? {} : { gcloud: fakeGcloud },
    state,
  });
  const calls = lines("calls");
  return {
    ...ran,
    state,
    calls,
    made: (words: string) =>
      calls.flatMap((call) => (call.startsWith(`${words} `) ? [call.slice(words.length + 1).split(" ")[0]!] : [])),
    job: (name: string) => fs.readFileSync(path.join(state, `job-leaderboard-${name}`), "utf8"),
    secrets: Object.fromEntries(
      fs
        .readdirSync(state)
        .filter((name) => name.startsWith("secret-"))
        .map((name) => [name.slice("secret-".length), fs.readFileSync(path.join(state, name), "utf8")]),
    ),
  };
}

/** What is made twice, or changed before it is there, is refused as Google would. */
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
  "secrets add-iam-policy-binding"*) need "secret-$3"; for one in "$@"; do [[ "$one" != serviceAccount:* ]] || { one="\${one#serviceAccount:}"; need "account-\${one%%@*}"; }; done ;;
  "run jobs replace"*) cp "$4" "$STATE/job-$(sed -n 's/^  name: //p' "$4")" ;;
  "run jobs describe"*) need "job-$4"; sed -n 's/.* image: //p' "$STATE/job-$4" ;;
  "run jobs execute"* | "run jobs add-iam-policy-binding"*) need "job-$4" ;;
  "scheduler jobs describe"*) need "clock-$4" ;;
  "scheduler jobs create http"*) make "clock-$5" ;;
  "scheduler jobs update http"*) need "clock-$5" ;;
  *) refuse "unknown: $*" ;;
esac
`;
