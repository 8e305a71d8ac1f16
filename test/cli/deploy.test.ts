// `stillwake deploy`: every generated file is validated against the platform's schema (the official one if available, and
// always a list of the keys we use), contains no secret, and never overwrites an edited file.
import { spawnSync } from "node:child_process";
import fs from "node:fs";
import { createRequire } from "node:module";
import os from "node:os";
import path from "node:path";
import { pathToFileURL } from "node:url";
import { Ajv, type ValidateFunction } from "ajv";
import { parse as parseToml } from "smol-toml";
import { afterAll, beforeAll, beforeEach, describe, expect, it, onTestFinished, vi } from "vitest";
import { parseAllDocuments } from "yaml";
import { cloudRun, fly, type KubernetesOptions, kubernetes, type PoolOptions } from "../../src/orchestrator/index.ts";
import { realClock } from "../../src/orchestrator/provider.ts";
import { readPoolOptions } from "../../src/orchestrator/settings.ts";
import { temporaryDirectory } from "../support/cleanup.ts";
import { ROOT } from "../support/processes/build.ts";
import { runCommand } from "../support/processes/cli-in-process.ts";
import { fakeFlyHead, flyKeys, hasShellcheck } from "../support/providers/deploy-files.ts";

const base = temporaryDirectory("deploy");
const before = process.cwd();
const require = createRequire(import.meta.url);
let projects = 0;

/** Each test runs in a separate project directory. */
beforeEach(() => {
  const project = path.join(base, `project-${++projects}`);
  fs.mkdirSync(project);
  process.chdir(project);
  fs.writeFileSync("package.json", JSON.stringify({ name: "@acme/Site Scanner" }));
  fs.writeFileSync("package-lock.json", "{}");
});

afterAll(() => {
  process.chdir(before);
});

const calls: Record<string, string[]> = {
  "fly, as it comes": ["fly"],
  "fly, as large as it gets":
    "fly --name scans --pool scan --size performance-8x --memory 64gb --region iad --warm 3 --max 5".split(" "),
  "fly, with pipelines of a folder":
    "fly --name small --size shared-cpu-1x --memory 512 --slots 4 --pipelines ./src/pipelines".split(" "),
  "Cloud Run, as it comes": ["cloud-run", "--project", "acme-prod"],
  "Cloud Run, drained by the clock": ["cloud-run", "--project", "acme-prod", "--drain", "*/5 * * * *"],
  "Cloud Run, large":
    "cloud-run --project acme-prod --region europe-west1 --size 8 --memory 32gb --pool scan.v2 --name eu".split(" "),
  "Cloud Run, under a name that means something to YAML": "cloud-run --project acme-prod --name on".split(" "),
  "Kubernetes, as it comes": ["kubernetes"],
  "Kubernetes, with all it takes":
    "kubernetes --namespace jobs --image registry.example.com:5000/acme:v3 --size 0.5 --memory 512mb --max 40 --slots 2 --pool scan".split(
      " ",
    ),
};

describe.each(Object.entries(calls))("%s:", (_name, args) => {
  it("generates the files and prints the next steps", async () => {
    const files = await generate(args);
    expect(Object.keys(files)).toEqual(expect.arrayContaining(["Dockerfile", "Dockerfile.dockerignore"]));
    expect(Object.values(files).every((text) => text.endsWith("\n") && !/undefined|NaN|\[object/.test(text))).toBe(
      true,
    );
  });

  it(`scripts are valid bash${hasShellcheck ? " without shellcheck findings" : " (shellcheck is not installed)"}, stop at the first error and are executable`, async () => {
    const files = await generate(args);
    for (const [name, text] of Object.entries(files).filter(([name]) => name.endsWith(".sh"))) {
      expect(spawnSync("bash", ["-n"], { input: text }), name).toMatchObject({ status: 0 });
      expect(text).toMatch(/^#!\/usr\/bin\/env bash\n(#.*\n)+set -euo pipefail\n/);
      expect(fs.statSync(path.join("deploy", name)).mode & 0o111, name).toBe(0o111);
      if (hasShellcheck) expect(String(spawnSync("shellcheck", ["-"], { input: text }).stdout), name).toBe("");
      // No secret is an argument, which every user of the host can read.
      expect(text).not.toMatch(/^\s*(fly|gcloud) .*\$\{?(\w+_)?DATABASE_URL/m);
    }
  });

  it("no file contains a secret, or suggests passing one as an argument", async () => {
    const files = await generate(args);
    for (const [name, text] of Object.entries(files)) {
      expect(text, name).not.toMatch(/--from-literal|--url/);
      expect(text.replaceAll("postgres://…", ""), name).not.toMatch(
        /postgres(ql)?:\/\/|fm2_|FlyV1|BEGIN .*KEY|password/i,
      );
    }
  });

  it("the Dockerfile pins its base, does not run as root, handles SIGTERM, and passes the linter", async () => {
    const { Dockerfile = "" } = await generate(args);
    expect(Dockerfile.match(/^FROM .*$/gm)).toEqual([
      expect.stringMatching(/^FROM node:\d+\.\d+\.\d+-bookworm-slim AS build$/),
      expect.stringMatching(/^FROM node:\d+\.\d+\.\d+-bookworm-slim$/),
    ]);
    expect(Dockerfile).toMatch(/^USER 1000:1000$/m);
    expect(Dockerfile).toMatch(/^STOPSIGNAL SIGTERM$/m);
    expect(Dockerfile).toContain("npm ci --omit=dev");
    expect(lint("deploy/Dockerfile")).toEqual([]);
  });
});

it("the linter detects mistakes", () => {
  fs.writeFileSync("bad", "FROM node:latest\nRUN sudo apt-get install curl\nEXPOSE 99999\n");
  expect(lint("bad").length).toBeGreaterThan(2);
});

describe("fly.toml", () => {
  const schema = readOfficialSchema<object>("data/schemas/fly.toml.schema.json");

  it.each(Object.entries(calls).filter(([, [platform]]) => platform === "fly"))(
    `%s: has only known keys${schema ? ", and matches Fly's schema" : " (Fly's schema is not available)"}`,
    async (_name, args) => {
      const files = await generate(args);
      for (const name of ["fly.toml", "fly.worker.toml"]) {
        const toml = parseToml(files[name]!) as unknown as FlyToml;
        expect(
          Object.keys(toml).filter((key) => !flyKeys[""].includes(key)),
          name,
        ).toEqual([]);
        for (const [table, keys] of Object.entries(flyKeys).filter(([table]) => table !== "")) {
          const found = [table === "checks" ? toml.http_service?.checks : toml[table as keyof FlyToml]]
            .flat()
            .filter(Boolean);
          for (const one of found)
            expect(
              Object.keys(one as object).filter((key) => !keys.includes(key)),
              table,
            ).toEqual([]);
        }
        if (schema) holds(new Ajv({ strict: false, allErrors: true }).compile(schema), toml, name);
        expect(toml.kill_signal).toBe("SIGTERM");
        expect(toml.vm.flatMap(({ processes }) => processes).sort()).toEqual(Object.keys(toml.processes).sort());
      }
    },
  );

  it("describes two apps: an API app that may sleep, and a workers' app without a service", async () => {
    const files = await generate(calls["fly, as large as it gets"]!);
    const asked = parseToml(files["fly.toml"]!) as unknown as FlyToml;
    expect(asked).toMatchObject({
      app: "scans",
      primary_region: "iad",
      env: { STILLWAKE_PORT: "8080" },
      processes: { api: "stillwake server" },
      http_service: {
        internal_port: 8080,
        auto_stop_machines: "stop",
        auto_start_machines: true,
        min_machines_running: 0,
      },
    });
    const workers = parseToml(files["fly.worker.toml"]!) as unknown as FlyToml;
    expect(workers).toMatchObject({
      app: "scans-workers",
      primary_region: "iad",
      processes: { scan: "stillwake worker --pool scan" },
      vm: [{ size: "performance-8x", memory: "64gb", processes: ["scan"] }],
    });
    expect(workers).not.toHaveProperty("http_service");
    expect(workers).not.toHaveProperty("services");
  });

  it("the token is limited to the workers' app, expires, and is stored in the API app", async () => {
    const { "deploy.sh": script = "" } = await generate(["fly"]);
    expect(script.match(/^.*fly tokens create.*$/gm)).toEqual([
      expect.stringMatching(/fly tokens create deploy --app "\$workers" .*--expiry "\$\{TOKEN_EXPIRY:-2160h\}"/),
    ]);
    expect(script.match(/^.*FLY_API_TOKEN.*$/gm)!.join("\n")).not.toContain("$workers");
    expect(script).not.toMatch(/tokens create org|auth token/);
  });

  it("the script runs from any directory, creates both apps once, and sets the secrets of each", async () => {
    await generate(calls["fly, as large as it gets"]!);
    const result = runWithFake("fly", {
      DATABASE_URL: "postgres://app:geheim@db/x",
      WORKER_DATABASE_URL: "postgres://worker:geheim2@db/x",
    });
    expect(result.status, result.stderr).toBe(0);
    const calls1 = result.calls;
    expect(calls1.filter((call) => call.startsWith("apps create"))).toEqual([
      "apps create scans --org personal",
      "apps create scans-workers --org personal",
    ]);
    expect(result.inputs).toEqual(
      expect.arrayContaining([
        "scans STILLWAKE_DATABASE_URL=postgres://app:geheim@db/x",
        "scans-workers STILLWAKE_DATABASE_URL=postgres://worker:geheim2@db/x",
        "scans FLY_API_TOKEN=a token for scans-workers",
      ]),
    );
    expect(result.inputs.filter((line) => line.startsWith("scans-workers"))).toHaveLength(1);
    // No secret is in the arguments of a call, which other users can read.
    expect(calls1.join("\n")).not.toMatch(/geheim|a token/);
    const deployed = calls1.filter((call) => call.startsWith("deploy"));
    expect(deployed).toEqual([
      expect.stringMatching(/fly\.worker\.toml .*--build-only --push --image-label v\d{8}-\d{6}$/),
      expect.stringMatching(/fly\.toml --image registry\.fly\.io\/scans-workers:v\d{8}-\d{6} .*--ha=false/),
    ]);
    expect(calls1.filter((call) => call.startsWith("machine run"))).toEqual([
      expect.stringMatching(/--rm .*-- stillwake orchestrator --once$/),
      expect.stringMatching(/--schedule hourly .*-- sh -c stillwake watchdog && stillwake orchestrator --once$/),
    ]);
    // The second run keeps the existing resources and the token.
    const again = runWithFake("fly", { DATABASE_URL: "postgres://app:geheim@db/x" }, result.state);
    expect(again.status, again.stderr).toBe(0);
    expect(again.calls.filter((call) => /apps create|tokens create/.test(call))).toEqual([]);
    expect(again.calls.filter((call) => call.startsWith("machine destroy"))).toEqual([
      "machine destroy 148e --app scans --force",
    ]);
  });

  it("the script stops when Fly does not respond, instead of treating a secret as missing", async () => {
    await generate(["fly"]);
    const result = runWithFake("fly", { DATABASE_URL: "postgres://x", FAIL: "secrets list" });
    expect(result.status).not.toBe(0);
    expect(result.inputs.filter((line) => /STILLWAKE_SECRET|FLY_API_TOKEN/.test(line))).toEqual([]);
    expect(result.calls.filter((call) => /tokens create|^deploy/.test(call))).toEqual([]);
  });

  it("the script reports a missing variable", async () => {
    await generate(["fly"]);
    const result = runWithFake("fly", {});
    expect(result).toMatchObject({ status: 1, calls: [] });
    expect(result.stderr).toMatch(/DATABASE_URL: is not set\. Set it to the URL of a Postgres/);
  });
});

describe("Cloud Run", () => {
  it.each(Object.entries(calls).filter(([, [platform]]) => platform === "cloud-run"))(
    "%s: jobs have no retries, run as another account than the one that starts them, and use Secret Manager",
    async (_name, args) => {
      const files = await generate(args);
      const jobs = Object.entries(files).filter(([name]) => name.startsWith("job."));
      expect(jobs.length).toBeGreaterThan(1);
      for (const [name, text] of jobs) {
        const [job] = documents(text, name);
        holds(new Ajv({ allErrors: true, strict: true, allowUnionTypes: true }).compile(cloudRunJob), job, name);
        const { containers, serviceAccountName } = (job as CloudRunJob).spec.template.spec.template.spec;
        expect(serviceAccountName).toMatch(name === "job.watchdog.yaml" ? /-orchestrator@/ : /-worker@/);
        expect(containers[0]!.env.find((one) => one.name === "STILLWAKE_DATABASE_URL")).toHaveProperty(
          "valueFrom.secretKeyRef",
        );
      }
    },
  );

  it("a job of the orchestrator exits by itself when it is started by hand; a scheduled pool needs no service", async () => {
    const served = await generate(["cloud-run", "--project", "acme-prod", "--pool", "scan"]);
    expect(served["job.scan.yaml"]).toMatch(/STILLWAKE_IDLE_EXIT\n\s+value: 5s/);
    expect(served).toHaveProperty(["service.yaml"]);
    const [service] = documents(served["service.yaml"]!, "service.yaml") as [
      { spec: { template: { metadata: object } } },
    ];
    expect(service.spec.template.metadata).toEqual({
      annotations: {
        "autoscaling.knative.dev/minScale": "0",
        "autoscaling.knative.dev/maxScale": "1",
        "run.googleapis.com/cpu-throttling": "false",
      },
    });
    const drained = await generate(
      ["cloud-run", "--project", "acme-prod", "--pool", "scan", "--drain", "0 */4 * * *", "--out", "drained"],
      "drained",
    );
    expect(drained["job.scan.yaml"]).toContain('args: ["stillwake", "worker", "--drain"]');
    expect(drained).not.toHaveProperty(["service.yaml"]);
    expect(drained["schedulers.sh"]).toContain('schedule "$name-scan" "0 */4 * * *"');
    expect(drained["deploy.sh"]).not.toContain("stillwakeOrchestrator");
  });

  it("two pools of stillwake.config with separate schedules", async () => {
    pools(`{ commits: { slots: 1 }, users: { slots: 2 } }`);
    const files = await generate([
      "cloud-run",
      "--project",
      "acme-prod",
      "--drain",
      "commits=*/5 * * * *",
      "--drain",
      "users=0 */4 * * *",
    ]);
    expect(files["schedulers.sh"]!.match(/^schedule ".*$/gm)).toEqual([
      'schedule "$name-commits" "*/5 * * * *"',
      'schedule "$name-users" "0 */4 * * *"',
      'schedule "$name-watchdog" "*/15 * * * *"',
    ]);
    const [users] = documents(files["job.users.yaml"]!, "job.users.yaml") as [CloudRunJob];
    expect(users.spec.template.spec.template.spec.containers[0]!.env).toContainEqual({
      name: "STILLWAKE_SLOTS",
      value: "2",
    });
  });

  it("--drain names a pool that need not be in stillwake.config; pools without a schedule use the orchestrator", async () => {
    const clocks = ["--drain", "commits=*/5 * * * *", "--drain", "users=0 */4 * * *"];
    const alone = await generate(["cloud-run", "--project", "acme-prod", ...clocks]);
    expect(Object.keys(alone).filter((name) => name.startsWith("job."))).toEqual([
      "job.commits.yaml",
      "job.users.yaml",
      "job.watchdog.yaml",
    ]);
    expect(alone).not.toHaveProperty(["service.yaml"]);
    const { stdout, stderr } = await runCommand(["deploy", "cloud-run", "--print", ...clocks, "--drain", "7 * * * *"]);
    expect(stdout.match(/^schedule ".*$/gm)).toEqual([
      'schedule "$name-default" "7 * * * *"',
      'schedule "$name-commits" "*/5 * * * *"',
      'schedule "$name-users" "0 */4 * * *"',
      'schedule "$name-watchdog" "*/15 * * * *"',
    ]);
    expect(stderr).not.toContain("Add these pools");
    pools("{ scan: {} }", "with-scan.mjs");
    const both = await runCommand(["deploy", "cloud-run", "--print", ...clocks, "--config", "with-scan.mjs"]);
    expect(both.stdout.match(/^==> .*job\..*$/gm)).toHaveLength(4);
    expect(both.stdout).toContain("service.yaml");
    expect(both.stderr).toMatch(/Add these pools[\s\S]*"scan": \{[^\n]*\n {4}\},/);
  });

  it("the orchestrator's role has only the permissions it needs, on its jobs only; the scheduler may only start them", async () => {
    const { "deploy.sh": deploy = "", "schedulers.sh": clock = "" } = await generate([
      "cloud-run",
      "--project",
      "acme-prod",
      "--pool",
      "scan",
    ]);
    expect(/permissions="(.*)"/.exec(deploy)![1]!.split(",")).toEqual([
      "run.jobs.get",
      "run.jobs.run",
      "run.jobs.runWithOverrides",
      "run.executions.get",
      "run.executions.list",
      "run.executions.cancel",
      "run.tasks.get",
      "run.tasks.list",
    ]);
    expect(`${deploy}${clock}`).not.toMatch(
      /projects add-iam-policy-binding|roles\/(owner|editor|run\.admin|run\.developer)/,
    );
    expect(clock.match(/--role \S+/g)).toEqual(["--role roles/run.invoker"]);
    expect(clock).toContain("gcloud run jobs add-iam-policy-binding");
  });

  it("the scripts create everything, with the tagged image in the files", async () => {
    await generate(["cloud-run", "--project", "acme-prod", "--pool", "scan", "--drain", "*/5 * * * *"]);
    const result = runWithFake("gcloud", { DATABASE_URL: "postgres://app:geheim@db/x" });
    expect(result.status, result.stderr).toBe(0);
    expect(result.calls.join("\n")).not.toContain("geheim");
    expect(result.inputs).toContain("acme-site-scanner-worker-database-url postgres://app:geheim@db/x");
    const replaced = result.inputs.filter((line) => line.startsWith("replaced"));
    expect(replaced).toEqual([
      expect.stringMatching(
        /^replaced acme-site-scanner-scan us-central1-docker\.pkg\.dev\/acme-prod\/acme-site-scanner\/acme-site-scanner:v\d{8}-\d{6}$/,
      ),
      expect.stringMatching(/^replaced acme-site-scanner-watchdog us-central1-docker\.pkg\.dev\/.*:v\d{8}-\d{6}$/),
    ]);
    const clock = runWithFake("gcloud", {}, result.state, "schedulers.sh");
    expect(clock.status, clock.stderr).toBe(0);
    expect(clock.calls.filter((call) => call.startsWith("scheduler jobs create http"))).toEqual([
      expect.stringMatching(
        /acme-site-scanner-scan .*--schedule \*\/5 \* \* \* \* .*jobs\/acme-site-scanner-scan:run /,
      ),
      expect.stringMatching(/acme-site-scanner-watchdog .*--schedule \*\/15 \* \* \* \*/),
    ]);
  });

  it("without a project the scripts stop at once", async () => {
    await generate(["cloud-run"]);
    const result = runWithFake("gcloud", { DATABASE_URL: "postgres://x" });
    expect(result).toMatchObject({ status: 2, calls: [] });
    expect(result.stderr).toContain("generate these files again with --project <id>");
  });
});

describe("Kubernetes", () => {
  const official = readOfficialSchema<{ components: { schemas: Record<string, object> } }>(
    "specs/kubernetes-batch-v1-openapi.json",
  );
  let described: (kind: string) => ValidateFunction;

  beforeAll(() => {
    const ajv = new Ajv({ strict: false, allErrors: true, validateFormats: false });
    if (official) ajv.addSchema(closed(official), "kubernetes");
    described = (kind) => ajv.compile({ $ref: `kubernetes#/components/schemas/${kind}` });
  });

  const those = Object.entries(calls).filter(([, [platform]]) => platform === "kubernetes");

  it.each(those)("%s: everything is in one namespace, unprivileged, and with versioned images", async (_name, args) => {
    const files = await generate(args);
    const all = Object.entries(files)
      .filter(([name]) => name.endsWith(".yaml"))
      .flatMap(([name, text]) => documents(text, name));
    const [namespace, ...rest] = all as KubeObject[];
    expect(namespace).toMatchObject({ apiVersion: "v1", kind: "Namespace" });
    for (const one of rest) expect(one.metadata.namespace, one.kind).toBe(namespace!.metadata.name);
    const pods = rest.flatMap(podsOf);
    expect(pods).toHaveLength(3);
    for (const pod of pods) {
      expect(pod.securityContext).toMatchObject({ runAsNonRoot: true, runAsUser: 1000 });
      for (const { image, securityContext, resources } of pod.containers) {
        expect(image).toMatch(/:v\d$/);
        expect(securityContext).toEqual({ allowPrivilegeEscalation: false, capabilities: { drop: ["ALL"] } });
        expect(resources.limits).toHaveProperty("memory");
      }
    }
    const secrets = rest.filter(({ kind }) => kind === "Secret");
    expect(secrets.flatMap(({ stringData }) => Object.values(stringData!))).toEqual(["", "", ""]);
  });

  it("the commands of the example create the secrets, and no secret is an argument", async () => {
    const files = await generate(["kubernetes", "--namespace", "jobs"]);
    const lines = `${files["secret.example.yaml"]}${files["scaledjob.yaml"]}`.match(
      /^# {3}( {2})?(printf|kubectl) .*$/gm,
    )!;
    const bin = fs.mkdtempSync(path.join(base, "kubectl-"));
    const fake = `#!/bin/sh\necho "$*" >>"${bin}/calls"\nsed "s/^/$6 /" "\${7#--from-env-file=}" >>"${bin}/inputs"\n`;
    fs.writeFileSync(path.join(bin, "kubectl"), fake, { mode: 0o755 });
    const url = "postgres://app:geheim%2F=@db/x";
    const env = { PATH: `${bin}:/usr/bin:/bin`, DATABASE_URL: url, WORKER_DATABASE_URL: url, KEDA_DATABASE_URL: url };
    const script = lines.map((line) => line.slice(1)).join("\n");
    expect(spawnSync("bash", ["-euo", "pipefail"], { input: script, env, encoding: "utf8" })).toMatchObject({
      status: 0,
    });
    expect(fs.readFileSync(path.join(bin, "inputs"), "utf8").trimEnd().split("\n")).toEqual([
      `stillwake-orchestrator STILLWAKE_DATABASE_URL=${url}`,
      expect.stringMatching(/^stillwake-orchestrator STILLWAKE_TOKEN=[0-9a-f]{48}$/),
      `stillwake-worker STILLWAKE_DATABASE_URL=${url}`,
      `stillwake-keda url=${url}`,
    ]);
    expect(fs.readFileSync(path.join(bin, "calls"), "utf8")).not.toContain("geheim");
  });

  it("the orchestrator may create, read and delete Jobs and read pods in its namespace only; workers have no token", async () => {
    const files = await generate(["kubernetes"]);
    const all = documents(files["rbac.yaml"]!, "rbac.yaml") as KubeObject[];
    expect(all.map(({ kind }) => kind)).toEqual(["ServiceAccount", "Role", "RoleBinding", "ServiceAccount"]);
    expect(all[1]!.rules).toEqual([
      { apiGroups: ["batch"], resources: ["jobs"], verbs: ["create", "get", "list", "delete"] },
      { apiGroups: [""], resources: ["pods"], verbs: ["get", "list"] },
    ]);
    expect(all[3]).toMatchObject({ metadata: { name: "stillwake-worker" }, automountServiceAccountToken: false });
  });

  it.each(those)(
    `%s: the CronJob and KEDA's Jobs have the expected fields${official ? ", and match the Kubernetes schema" : " (the Kubernetes schema is not available)"}`,
    async (_name, args) => {
      const files = await generate(args);
      const [cron] = documents(files["watchdog.yaml"]!, "watchdog.yaml") as KubeObject[];
      expect(cron).toMatchObject({
        apiVersion: "batch/v1",
        kind: "CronJob",
        spec: { concurrencyPolicy: "Forbid", jobTemplate: { spec: { backoffLimit: 0 } } },
      });
      const [trigger, scaled] = documents(files["scaledjob.yaml"]!, "scaledjob.yaml") as KubeObject[];
      expect(trigger).toMatchObject({ kind: "TriggerAuthentication" });
      expect(scaled).toMatchObject({
        apiVersion: "keda.sh/v1alpha1",
        spec: {
          triggers: [
            {
              type: "postgresql",
              metadata: {
                query: expect.stringMatching(/^select .* from stillwake\.wanted_workers where pool = '\w+'$/),
                targetQueryValue: "1",
              },
            },
          ],
          jobTargetRef: {
            backoffLimit: 0,
            podReplacementPolicy: "Failed",
            template: { spec: { restartPolicy: "Never" } },
          },
        },
      });
      if (!official) return;
      holds(described("io.k8s.api.batch.v1.CronJob"), cron, "watchdog.yaml");
      holds(
        described("io.k8s.api.batch.v1.JobSpec"),
        (scaled as { spec: { jobTargetRef: object } }).spec.jobTargetRef,
        "scaledjob.yaml",
      );
      const [deployment] = documents(files["orchestrator.yaml"]!, "orchestrator.yaml") as KubeObject[];
      holds(
        described("io.k8s.api.core.v1.PodTemplateSpec"),
        (deployment as { spec: { template: object } }).spec.template,
        "orchestrator.yaml",
      );
    },
  );

  it.each(["on", "no", "null", "true", "123", "1e3"])(
    "a namespace may be called %s, and stays a string",
    async (name) => {
      const files = await generate(["kubernetes", "--namespace", name]);
      const all = Object.entries(files)
        .filter(([file]) => file.endsWith(".yaml"))
        .flatMap(([file, text]) => documents(text, file, "1.1") as KubeObject[]);
      const named = all.map(({ kind, metadata }) => (kind === "Namespace" ? metadata.name : metadata.namespace));
      expect(new Set(named)).toEqual(new Set([name]));
      const binding = all.find(({ kind }) => kind === "RoleBinding");
      expect(binding).toMatchObject({ subjects: [{ namespace: name }] });
    },
  );

  it("the orchestrator has one replica, responds to probes, and accepts pokes at the documented address", async () => {
    const files = await generate(["kubernetes", "--namespace", "jobs"]);
    const [deployment, service] = documents(files["orchestrator.yaml"]!, "orchestrator.yaml");
    expect(deployment).toMatchObject({
      kind: "Deployment",
      spec: {
        replicas: 1,
        template: {
          spec: {
            serviceAccountName: "stillwake-orchestrator",
            containers: [
              {
                args: ["stillwake", "orchestrator", "--host", "0.0.0.0", "--port", "8080"],
                readinessProbe: { httpGet: { path: "/health" } },
                livenessProbe: { httpGet: { path: "/health" } },
              },
            ],
          },
        },
      },
    });
    expect(service).toMatchObject({ kind: "Service", spec: { ports: [{ port: 8080 }] } });
    expect(files["orchestrator.yaml"]).toContain("http://stillwake-orchestrator.jobs.svc:8080/v1/poke");
  });
});

describe("stillwake deploy", () => {
  it("--print prints the files under their names and writes nothing", async () => {
    const printed = await runCommand(["deploy", "fly", "--print"]);
    expect(printed.code).toBe(0);
    expect(fs.existsSync("deploy")).toBe(false);
    const written = await generate(["fly"]);
    const parts = printed.stdout.split(/^==> deploy\/(.*) <==\n/m).slice(1);
    const files = Object.fromEntries(
      parts.flatMap((name, at) => (at % 2 === 0 ? [[name, `${parts[at + 1]!.trimEnd()}\n`]] : [])),
    );
    expect(files).toEqual(written);
    expect(printed.stderr).toContain("Next, after reading the files:");
  });

  it("writes nothing if any file has been edited, unless --force is set", async () => {
    const first = await generate(["fly"]);
    expect((await runCommand(["deploy", "fly"])).stdout).toMatch(/^(unchanged {2}deploy\/\S+\n){5}$/);
    fs.appendFileSync("deploy/fly.toml", "# mine\n");
    const refused = await runCommand(["deploy", "fly", "--region", "fra"]);
    expect(refused).toMatchObject({ code: 2, stdout: "" });
    expect(refused.stderr).toMatch(
      /deploy\/fly\.toml, deploy\/fly\.worker\.toml, deploy\/deploy\.sh exist with different content, so nothing was written\. Compare with --print; use --force/,
    );
    expect(fs.readFileSync("deploy/fly.toml", "utf8")).toBe(`${first["fly.toml"]}# mine\n`);
    expect(fs.readFileSync("deploy/deploy.sh", "utf8")).toBe(first["deploy.sh"]);
    const forced = await runCommand(["deploy", "fly", "--region", "fra", "--force"]);
    expect(forced.code).toBe(0);
    expect(fs.readFileSync("deploy/fly.toml", "utf8")).toContain('primary_region = "fra"');
  });

  it.each(Object.values(calls).filter((args) => !args.includes("--drain")))(
    "%s …: prints the missing pools for stillwake.config, which the providers accept",
    async (...args) => {
      const { stderr } = await runCommand(["deploy", ...args, "--print"]);
      const shown = /pools: \{\n([\s\S]*?)\n {4}\},\n/.exec(stderr)![1]!;
      // Outside a cluster kubernetes() needs a server.
      const elsewhere = (options: KubernetesOptions) =>
        kubernetes({ ...options, server: "https://127.0.0.1", token: "of nobody" });
      const used = {
        fly,
        cloudRun,
        kubernetes: elsewhere,
        process: { env: { STILLWAKE_IMAGE: "registry.fly.io/acme:v1" } },
      };
      const read = new Function(...Object.keys(used), `return {${shown}}`);
      vi.stubEnv("FLY_API_TOKEN", "of nobody");
      onTestFinished(() => void vi.unstubAllEnvs());
      const [[pool, options]] = Object.entries(read(...Object.values(used)) as Record<string, PoolOptions>) as [
        [string, PoolOptions],
      ];
      const provider = options.provider({
        fleet: "0badcafe",
        pool,
        slots: 1,
        graceMs: 1000,
        report: () => {},
        clock: realClock,
      });
      expect(provider.kind).toBe(args[0]);
      const settings = readPoolOptions(pool, options, provider.facts);
      expect(settings).toMatchObject({ warm: args.includes("--warm") ? 3 : 0, max: args.includes("40") ? 40 : 5 });
      if (args.includes("64gb"))
        expect(provider.facts).toMatchObject({ size: "performance-8x", memoryMb: 65_536, region: "iad" });
    },
  );

  it("reads pools, sizes and numbers from stillwake.config; flags take precedence", async () => {
    realPools(`{
      scan: { slots: 2, warm: 1, max: 4, grace: "90s", provider: fly({ app: "acme-workers", size: "performance-2x", memoryMb: 8192, region: "ams" }) },
      mail: { provider: local() },
    }`);
    const first = await runCommand(["deploy", "fly"]);
    expect(first.stderr).not.toContain("Cannot read the machine size");
    expect(first.stderr, "existing pools are not printed").toMatch(
      /pools: \{\n {6}"mail": \{[^\n]*performance-1x[^\n]*\n {4}\},/,
    );
    expect(parseToml(fs.readFileSync("deploy/fly.worker.toml", "utf8"))).toMatchObject({
      primary_region: "ams",
      kill_timeout: "90s",
      processes: { scan: "stillwake worker --pool scan", mail: "stillwake worker --pool mail" },
      vm: [
        { size: "performance-2x", memory: "8gb", processes: ["scan"] },
        { size: "performance-1x", memory: "2gb", processes: ["mail"] },
      ],
    });
    const { stdout, stderr } = await runCommand(["deploy", "fly", "--print", "--pool", "scan", "--memory", "4gb"]);
    expect(stdout).toContain('memory = "4gb"');
    expect(stdout).not.toContain("mail");
    const larger = await runCommand(["deploy", "fly", "--print", "--pool", "scan", "--size", "performance-8x"]);
    expect(larger.stdout, "the memory of the other size does not apply").toContain('memory = "16gb"');
    expect(stderr).not.toContain("Add these pools to stillwake.config");
  });

  it.each([
    [
      "fly",
      'fly({ app: "acme-workers", size: "performance-14x", region: "iad" })',
      /size = "performance-14x"\nmemory = "28gb"/,
    ],
    [
      "cloud-run",
      'cloudRun({ project: "acme-prod", region: "europe-west1", job: "acme-scan", cpu: 4, memoryMb: 8192 })',
      /cpu: "4"\n\s+memory: 8Gi/,
    ],
    [
      "kubernetes",
      'kubernetes({ namespace: "jobs", image: "registry.example.com/acme:v1", cpu: 0.5, memoryMb: 512, server: "https://127.0.0.1", token: "of nobody" })',
      /cpu: "0\.5"\n\s+memory: 512Mi/,
    ],
  ])("%s: reads the machine size from the provider without a token or an image", async (platform, provider, result) => {
    for (const name of [
      "FLY_API_TOKEN",
      "FLY_ACCESS_TOKEN",
      "FLY_IMAGE_REF",
      "STILLWAKE_IMAGE",
      "GOOGLE_APPLICATION_CREDENTIALS",
    ])
      vi.stubEnv(name, "");
    onTestFinished(() => void vi.unstubAllEnvs());
    realPools(`{ scan: { provider: ${provider} } }`);
    const { stdout, stderr } = await runCommand(["deploy", platform, "--print"]);
    expect(stdout).toMatch(result);
    expect(stderr).not.toMatch(/Cannot read the machine size|Add these pools/);
    if (platform === "cloud-run") expect(stdout).toContain('region="europe-west1"');
  });

  it("ignores an unreadable stillwake.config with a warning, but not one named by --config", async () => {
    fs.writeFileSync("stillwake.config.mjs", "throw new Error('no database here')");
    const { code, stderr } = await runCommand(["deploy", "fly", "--print"]);
    expect(code).toBe(0);
    expect(stderr).toContain("Ignoring the pools of stillwake.config, which cannot be read: no database here");
    expect((await runCommand(["deploy", "fly", "--print", "--config", "stillwake.config.mjs"])).code).toBe(1);
  });

  it("warns if the size of a pool cannot be read, and does not print an existing pool again", async () => {
    vi.stubEnv("KUBERNETES_SERVICE_HOST", "");
    onTestFinished(() => void vi.unstubAllEnvs());
    realPools(`{ scan: { provider: kubernetes({ image: "registry.example.com/acme:v1" }) } }`);
    const { stderr } = await runCommand(["deploy", "kubernetes", "--print"]);
    expect(stderr).toMatch(
      /Cannot read the machine size of pool scan, so the default or the flags apply: kubernetes\(\) has no server/,
    );
    expect(stderr).not.toContain("Add these pools");
  });

  it("warns of a missing lockfile", async () => {
    fs.rmSync("package-lock.json");
    expect((await runCommand(["deploy", "fly", "--print"])).stderr).toContain(
      "No package-lock.json found, which the image needs: run npm install.",
    );
  });

  it.each([
    [["heroku"], /Unknown platform "heroku"\. Use one of: fly, cloud-run, kubernetes/],
    [["flyy"], /Did you mean fly\?/],
    [["fly", "--name", "A b"], /Invalid --name "A b"\. Use lower-case letters/],
    [["fly", "--name", 'x"; rm -rf ~; "'], /Invalid --name .*/],
    [["fly", "--size", "huge"], /Fly has no machines of size "huge"\. Use one of shared-cpu-1x.* performance-14x/],
    [
      ["fly", "--size", "performance-8x", "--memory", "8gb"],
      /Fly has no performance-8x with 8192 MB of memory\. Use 16384 to 65536/,
    ],
    [["fly", "--memory", "much"], /Invalid --memory "much"\. Use megabytes or gigabytes/],
    [["fly", "--warm", "6", "--max", "5"], /has warm 6, above its max of 5\. Raise --max/],
    [["fly", "--slots", "0"], /Invalid --slots "0"\. Use a whole number from 1/],
    [["fly", "--project", "acme"], /--project does not apply to fly\. It is for cloud-run: remove it/],
    [["fly", "--out", "/etc"], /Invalid --out "\/etc"\. Use a directory inside the project/],
    [["fly", "--out", ".."], /Invalid --out "\.\."/],
    [["fly", "--region", "iad; x"], /Invalid --region "iad; x"/],
    [["fly", "--pool", "a'b"], /Invalid --pool "a'b"/],
    [["cloud-run", "--warm", "1"], /cloud-run does not support warm machines\. Remove --warm/],
    [["cloud-run", "--size", "3"], /Invalid --size "3"\. Use 1, 2, 4, 6, 8 vCPUs/],
    [["cloud-run", "--memory", "5gb"], /With 1 vCPU use 0\.5gb to 4gb/],
    [["cloud-run", "--drain", "hourly"], /Invalid --drain "hourly"\. Use a cron expression with five fields/],
    [
      ["cloud-run", "--pool", "scan", "--drain", "users=0 * * * *"],
      /--drain names pool "users", but --pool is scan\. Remove one of them/,
    ],
    [["cloud-run", "--image", "gcr.io/acme/acme:v1"], /has a tag\. Remove it/],
    [["cloud-run", "--pool", "watchdog"], /The pool name watchdog is reserved/],
    [["cloud-run", "--name", "a-name-that-is-too-long"], /Use lower-case letters, digits and dashes, at most 17/],
    [["kubernetes", "--image", "acme"], /has no version tag\. Add one/],
    [["kubernetes", "--image", "acme:latest"], /has no version tag/],
    [["kubernetes", "--size", "lots"], /Invalid --size "lots"\. Use a number of CPUs/],
    [[], /deploy needs more arguments: stillwake deploy fly\|cloud-run\|kubernetes/],
  ])("rejects %j", async (args, message) => {
    const { code, stdout, stderr } = await runCommand(["deploy", ...args]);
    expect({ code, stdout }).toEqual({ code: 2, stdout: "" });
    expect(stderr).toMatch(message);
    expect(fs.existsSync("deploy")).toBe(false);
  });

  it("rejects two pools with the same short name", async () => {
    pools(`{ "scan.a": {}, "scan-a": {} }`);
    expect((await runCommand(["deploy", "kubernetes"])).stderr).toMatch(/Two pools have the same short name scan-a/);
  });
});

/**
 * An official schema of a platform, which is not part of this repository: in ../shared/specs, or in the folder of STILLWAKE_SPECS.
 * Undefined if it is not available.
 */
function readOfficialSchema<T>(name: string): T | undefined {
  const given = process.env.STILLWAKE_SPECS;
  const places = [...(given ? [path.join(given, path.basename(name))] : []), path.join(ROOT, "../shared", name)];
  const file = places.find((place) => fs.existsSync(place));
  return file && JSON.parse(fs.readFileSync(file, "utf8"));
}

/** Generates the files and returns them by name. */
async function generate(args: readonly string[], out = "deploy"): Promise<Record<string, string>> {
  const { code, stderr } = await runCommand(["deploy", ...args]);
  expect(code, stderr).toBe(0);
  expect(stderr).toContain("Next, after reading the files:");
  return Object.fromEntries(fs.readdirSync(out).map((name) => [name, fs.readFileSync(path.join(out, name), "utf8")]));
}

function pools(text: string, file = "stillwake.config.mjs"): void {
  fs.writeFileSync(file, `export default { pools: ${text} };`);
}

/** Writes a stillwake.config with real providers. */
function realPools(text: string): void {
  const providers = pathToFileURL(path.join(ROOT, "src/orchestrator/index.ts")).href;
  fs.writeFileSync(
    "stillwake.config.mjs",
    `import { cloudRun, fly, kubernetes, local } from ${JSON.stringify(providers)};\nexport default { pools: ${text} };`,
  );
}

/** Findings of dockerfilelint. */
function lint(file: string): string[] {
  const { run } = require("dockerfilelint") as { run(dir: string, text: string): { line: string; title: string }[] };
  return run(path.resolve("."), fs.readFileSync(file, "utf8")).map(({ line, title }) => `${line}: ${title}`);
}

/** In YAML 1.1, which most programs use, "on" is true. */
function documents(text: string, name: string, version: "1.1" | "1.2" = "1.2"): unknown[] {
  return parseAllDocuments(text, { version }).map((document) => {
    expect([...document.errors, ...document.warnings], name).toEqual([]);
    return document.toJS();
  });
}

function holds(validate: ValidateFunction, value: unknown, name: string): void {
  validate(value);
  expect(validate.errors ?? [], name).toEqual([]);
}

/** The same schema without additional fields. */
function closed<T extends { components: { schemas: Record<string, object> } }>(description: T): T {
  const schemas = Object.entries(description.components.schemas).map(([name, schema]) => [
    name,
    "properties" in schema ? { ...schema, additionalProperties: false } : schema,
  ]);
  return { ...description, components: { schemas: Object.fromEntries(schemas) } };
}

/** Runs a generated script from another directory, with a fake of the platform's CLI that records its calls. */
function runWithFake(
  program: "fly" | "gcloud",
  env: Record<string, string>,
  state = fs.mkdtempSync(path.join(base, "fake-")),
  script = "deploy.sh",
) {
  const bin = path.join(state, "bin");
  fs.mkdirSync(bin, { recursive: true });
  for (const name of [program, "docker", "npx"]) {
    fs.writeFileSync(path.join(bin, name), name === program ? fakes[program] : "#!/bin/sh\nexit 0\n", { mode: 0o755 });
  }
  fs.rmSync(path.join(state, "calls"), { force: true });
  fs.rmSync(path.join(state, "inputs"), { force: true });
  const { status, stderr } = spawnSync("bash", [path.join(process.cwd(), "deploy", script)], {
    cwd: os.tmpdir(),
    encoding: "utf8",
    env: { PATH: `${bin}:${path.dirname(process.execPath)}:/usr/bin:/bin`, STATE: state, ...env },
  });
  const lines = (name: string) =>
    fs.existsSync(path.join(state, name)) ? fs.readFileSync(path.join(state, name), "utf8").trimEnd().split("\n") : [];
  return { status, stderr, state, calls: lines("calls"), inputs: lines("inputs") };
}

const fakes = {
  fly: `${fakeFlyHead}case "$1 $2" in
  "status --app") [[ -e "$STATE/app-$app" ]] ;;
  "apps create") touch "$STATE/app-$3" ;;
  "secrets list") cat "$STATE/secrets-$app" 2>/dev/null || true ;;
  "secrets import") read -r line; echo "$app $line" >>"$STATE/inputs"; echo "[{\\"Name\\":\\"\${line%%=*}\\"}]" >>"$STATE/secrets-$app" ;;
  "tokens create") echo "a token for $app" ;;
  "machine list") if [[ -e "$STATE/machine" ]]; then echo '[{"id":"148e","name":"scans-watchdog"}]'; else echo "[]"; fi ;;
  "machine run") touch "$STATE/machine" ;;
esac
`,
  gcloud: `#!/usr/bin/env bash
set -eu
echo "$*" >>"$STATE/calls"
case "$1 $2 $3" in
  *describe*) exit 1 ;;
  "secrets versions access") exit 1 ;;
  "secrets versions add") echo "$4 $(cat)" >>"$STATE/inputs" ;;
  "run jobs replace") echo "replaced $(sed -n 's/^  name: //p' "$4") $(sed -n 's/.* image: //p' "$4")" >>"$STATE/inputs" ;;
esac
`,
};

const string = { type: "string", minLength: 1 } as const;
/** The fields we use of Cloud Run's Job, v1. */
const cloudRunJob = object({
  apiVersion: { const: "run.googleapis.com/v1" },
  kind: { const: "Job" },
  metadata: object({ name: { type: "string", pattern: "^[a-z][a-z0-9-]{0,47}[a-z0-9]$" }, labels: { type: "object" } }),
  spec: object({
    template: object({
      spec: object({
        taskCount: { const: 1 },
        parallelism: { const: 1 },
        template: object({
          spec: object({
            maxRetries: { const: 0 },
            timeoutSeconds: { type: "string", pattern: "^[0-9]+$" },
            serviceAccountName: { type: "string", pattern: "^[a-z0-9-]+@[a-z0-9-]+\\.iam\\.gserviceaccount\\.com$" },
            containers: {
              type: "array",
              items: object({
                image: string,
                args: { type: "array", items: string },
                env: {
                  type: "array",
                  items: {
                    anyOf: [
                      object({ name: string, value: string }),
                      object({
                        name: string,
                        valueFrom: object({ secretKeyRef: object({ name: string, key: string }) }),
                      }),
                    ],
                  },
                },
                resources: object({
                  limits: object({
                    cpu: { type: "string", pattern: "^[1-8]$" },
                    memory: { type: "string", pattern: "^[0-9]+(Mi|Gi)$" },
                  }),
                }),
              }),
            },
          }),
        }),
      }),
    }),
  }),
});

function object(properties: Record<string, object>): object {
  return { type: "object", properties, required: Object.keys(properties), additionalProperties: false };
}

interface FlyToml {
  kill_signal: string;
  processes: Record<string, string>;
  http_service?: { checks: object[] };
  vm: { processes: string[] }[];
}

interface CloudRunJob {
  spec: {
    template: {
      spec: {
        template: { spec: { serviceAccountName: string; containers: { env: { name: string; value?: string }[] }[] } };
      };
    };
  };
}

interface PodSpec {
  securityContext: object;
  containers: { image: string; securityContext: object; resources: { limits: object } }[];
}

interface KubeObject {
  kind: string;
  metadata: { name: string; namespace?: string };
  rules?: object[];
  stringData?: Record<string, string>;
  spec?: {
    template?: { spec: PodSpec };
    jobTemplate?: { spec: { template: { spec: PodSpec } } };
    jobTargetRef?: { template: { spec: PodSpec } };
  };
}

function podsOf({ spec }: KubeObject): PodSpec[] {
  return [spec?.template?.spec, spec?.jobTemplate?.spec.template.spec, spec?.jobTargetRef?.template.spec].filter(
    (one) => one !== undefined,
  );
}
