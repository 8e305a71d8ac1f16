// Serves the application on a port, and adds projects with completed or failed extractions, written by the application's code and
// Stillwake's SQL functions.
import { createHash } from "node:crypto";
import fs from "node:fs";
import os from "node:os";
import path from "node:path";
import pg from "pg";
import { createServer } from "stillwake/server";
import { travel } from "stillwake/testing";
import { openStore } from "stillwake/worker";
import type { Dashboard } from "../../../../test/support/server/dashboard-server.ts";
import { endMachine, setUpMachines, startMachine } from "../../../../test/support/server/scenario-machines.ts";
import { type Caller, callAt, listen } from "../../../kit/test/support/api-server.ts";
import { type AppOptions, createApp, migrate } from "../../src/app.ts";
import { extraction } from "../../src/contract.ts";
import type { Finding, Vulnerability } from "../../src/model.ts";
import { type Results, recordCompletion } from "../../src/outcomes.ts";
import { claimJob } from "./api-calls.ts";

export interface ServedApp {
  pool: pg.Pool;
  origin: string;
  /** URL of the application, with a trailing slash. */
  home: string;
  api: Caller;
  live: ReturnType<typeof createServer>;
  /** Stores an artifact of a running job. */
  storeArtifact(claimed: Claim, name: string, text: string): Promise<void>;
  log(claimed: Claim, ...lines: Line[]): Promise<void>;
  settle(claimed: Claim, outcome: Record<string, unknown>): Promise<void>;
  close(): Promise<void>;
}

type Claim = Awaited<ReturnType<typeof claimJob>>;

interface Line {
  message: string;
  level?: "info" | "success" | "warning" | "error";
  step?: string;
  data?: unknown;
}

export async function serveApp(url: string, options: Partial<AppOptions> = {}): Promise<ServedApp> {
  const pool = new pg.Pool({ connectionString: url });
  await migrate(pool);
  const folder = fs.mkdtempSync(path.join(os.tmpdir(), "stillwake-extraction-"));
  const live = createServer({
    url,
    store: openStore(`file:${folder}`),
    secret: "a secret of more than thirty-two characters",
  });
  await live.stillwake.register(extraction);
  const base = options.base ?? "/";
  const app = createApp({ pool, stillwake: live.stillwake, live: live.fetch, ...options });
  const { origin, close } = await listen(app);
  const call = (name: string, elements: object[]) =>
    pool.query(`select stillwake.${name}($1)`, [JSON.stringify(elements)]);
  return {
    pool,
    origin,
    home: origin + base,
    api: callAt(`${origin}${base}api`),
    live,
    async storeArtifact(claimed, name, text) {
      const sha = createHash("sha256").update(text).digest("hex");
      const key = `2026-01-05/${claimed.job}/${claimed.epoch}/${sha}`;
      const file = path.join(folder, key);
      fs.mkdirSync(path.dirname(file), { recursive: true });
      fs.writeFileSync(file, text);
      const { job, epoch, lease } = claimed;
      const values = [job, epoch, lease, name, Buffer.byteLength(text), sha, "application/json", key];
      await pool.query("select stillwake.save_artifact($1, $2, $3, $4, $5, $6, $7, $8)", values);
    },
    log: async (claimed, ...lines) => void (await call("append_logs", [{ ...claimed, lines }])),
    settle: async (claimed, outcome) => void (await call("settle", [{ ...claimed, ...outcome }])),
    async close() {
      await close();
      await live.close();
      await pool.end();
      fs.rmSync(folder, { recursive: true, force: true });
    },
  };
}

const vulnerability = (more: Partial<Vulnerability>): Vulnerability => ({
  id: "STILLWAKE-2026-0001",
  aliases: [],
  cve: null,
  purl: "pkg:npm/lodash@4.17.15",
  name: "lodash",
  version: "4.17.15",
  severity: "high",
  score: 7.4,
  summary: "A sample: a merge of untrusted objects reaches the prototype",
  fixed: ["4.17.19"],
  reachable: null,
  source: "built-in",
  url: null,
  ...more,
});

const finding = (more: Partial<Finding>): Finding => ({
  kind: "code",
  rule: "node-eval",
  severity: "high",
  path: "src/shop.js",
  line: 12,
  endLine: 12,
  message: "A value is executed as code",
  cwe: ["CWE-95"],
  engine: "ast-grep",
  fingerprint: "f1",
  ...more,
});

export const RESULTS: Results = {
  vulnerabilities: [
    vulnerability({
      id: "STILLWAKE-2026-0003",
      severity: "low",
      name: "minimist",
      version: "1.2.0",
      purl: "pkg:npm/minimist@1.2.0",
      fixed: [],
    }),
    vulnerability({
      cve: "CVE-2026-1000",
      severity: "critical",
      reachable: true,
      url: "https://advisories.example.com/1",
    }),
    vulnerability({
      id: "STILLWAKE-2026-0002",
      cve: "CVE-2026-2000",
      severity: "critical",
      name: "pyyaml",
      version: "5.3",
      purl: "pkg:pypi/pyyaml@5.3",
    }),
    vulnerability({
      id: "STILLWAKE-2026-0004",
      severity: "medium",
      url: "javascript:alert(1)",
      summary: "<img src=x onerror=alert(1)>\u202etxt.\u001b[31m",
    }),
  ],
  exploited: {
    byCve: {
      "CVE-2026-1000": { epss: 0.0421, percentile: 0.912, kev: null },
      "CVE-2026-2000": {
        epss: 0.9734,
        percentile: 0.9991,
        kev: { added: "2026-02-03", due: "2026-02-24", ransomware: true },
      },
    },
    read: { epss: true, kev: true },
  },
  code: [
    finding({}),
    finding({
      fingerprint: "f2",
      rule: "python-yaml-load",
      severity: "medium",
      path: "shop/prices.py",
      line: 4,
      cwe: [],
    }),
  ],
  secrets: [
    finding({
      kind: "secret",
      rule: "aws-access-key",
      severity: "critical",
      path: "config/old.env",
      line: 2,
      message: "AWS access key",
      engine: "secretlint",
      fingerprint: "s1",
      cwe: ["CWE-798"],
    }),
  ],
  coverage: { checked: 3, total: 3, notes: [] },
  reports: [],
  result: {
    commit: "4f1c2d3e5a6b7c8d9e0f1a2b3c4d5e6f7a8b9c0d",
    dependencies: { direct: 2, transitive: 1 },
    vulnerabilities: { total: 4, critical: 2 },
    coverage: { checked: 3, total: 3, notes: [] },
    findings: 2,
    secrets: 1,
    reports: ["sbom.cdx.json", "reports/summary.html"],
  },
};

/** Adds a project with a completed extraction that has findings of all kinds. */
export async function addExtractedProject(
  served: ServedApp,
  repository: string,
): Promise<{ project: string; job: string }> {
  const { body } = await served.api.post("/projects", { repository });
  const {
    id: project,
    extraction: { id: job },
  } = body;
  const stage = { sql: served.pool } as unknown as Dashboard;
  await setUpMachines(stage);
  const life = await startMachine(stage, { ordinal: 1 });
  const claimed = await claimJob(served.pool, job, undefined, { machine: life.machine, lease: "1 hour" });
  await served.pool.query(
    `insert into extraction.dependencies (project_id, extraction_id, purl, name, version, ecosystem, direct, licenses)
     select $1, $2, 'pkg:npm/' || n || '@' || v, n, v, 'npm', d, '{MIT}' from (values ('lodash', '4.17.15', true), ('express', '4.17.1', true), ('minimist', '1.2.0', false)) x (n, v, d)`,
    [project, job],
  );
  await served.log(
    claimed,
    { step: "cloning", message: "Cloning repository from GitHub..." },
    { step: "cloning", message: "Repository cloned successfully", level: "success", data: { took_ms: 2310 } },
    { step: "sbom", message: "Generating software bill of materials..." },
    { step: "sbom", message: "SBOM generated - found 3 dependencies", level: "success", data: { took_ms: 15_400 } },
    { step: "vuln_scan", message: "Vulnerability scanning unavailable (dep-scan not installed)", level: "warning" },
    {
      step: "vuln_scan",
      message: "Vulnerability scan complete - found 4 vulnerabilities (2 critical)",
      level: "success",
      data: { took_ms: 840 },
    },
  );
  await served.storeArtifact(claimed, "sbom.cdx.json", '{"bomFormat":"CycloneDX"}');
  await served.storeArtifact(claimed, "reports/summary.html", "<script>alert(1)</script>");
  await served.storeArtifact(claimed, "found/secrets.json", "[]");
  const client = await served.pool.connect();
  await recordCompletion(client, { extractionId: job, projectId: project }, RESULTS);
  client.release();
  await travel(served.pool, "5m");
  await served.log(claimed, { message: "Extraction complete", level: "success", data: { took_ms: 300_000 } });
  await served.settle(claimed, { outcome: "completed", output: RESULTS.result, missing: ["vuln_scan/exploitation"] });
  await endMachine(stage, life);
  return { project, job };
}

/** Adds an extraction that completes with these results. */
export async function addCompletedExtraction(
  served: ServedApp,
  project: string,
  found: Partial<Results>,
): Promise<void> {
  const { body } = await served.api.post(`/projects/${project}/extractions`);
  const client = await served.pool.connect();
  const results = { ...RESULTS, ...found };
  const result = { ...results.result, coverage: results.coverage };
  await recordCompletion(client, { extractionId: body.id, projectId: project }, { ...results, result });
  client.release();
  await claimJob(served.pool, body.id, { outcome: "completed", output: null, missing: [] });
}

export async function addFailedProject(
  served: ServedApp,
  repository: string,
): Promise<{ project: string; job: string }> {
  const { body } = await served.api.post("/projects", { repository });
  const claimed = await claimJob(served.pool, body.extraction.id, undefined, { machine: "sw-f00d-scan-m2" });
  const sentence = "Extraction failed: Branch 'nowhere' not found in repository";
  await served.log(
    claimed,
    { step: "cloning", message: "Cloning repository from GitHub..." },
    {
      step: "cloning",
      message: "Branch 'nowhere' not found in repository",
      level: "error",
      data: { code: "NO_BRANCH", stack: "UserError: …" },
    },
    { message: sentence, level: "error" },
  );
  await served.settle(claimed, { outcome: "failed", fatal: true, failure: { message: "x", sentence } });
  return { project: body.id, job: body.extraction.id };
}
