// The vulnerability scan without dep-scan and advisories: it asks a local server with OSV.dev's wire format, which also fails in
// many ways. Each scan is a job on a real worker, with the cache in a real database.
import fs from "node:fs";
import http from "node:http";
import type { AddressInfo } from "node:net";
import path from "node:path";
import { waitFor } from "stillwake/testing";
import { afterAll, beforeEach, describe, expect, it } from "vitest";
import type { Coverage, VulnerabilityScan } from "../../src/model.ts";
import { readSettings } from "../../src/settings.ts";
import { storeAdvisories } from "../../src/vulnerabilities/advisory-cache.ts";
import { LIMITS } from "../../src/vulnerabilities/osv.ts";
import { scanVulnerabilities } from "../../src/vulnerabilities/scan.ts";
import { type OsvRecord, startOsvServer } from "../support/osv-server.ts";
import { setUpScans } from "../support/scan-job.ts";

const { folder: root, run, start, pool, stillwake } = await setUpScans();
const osv = await startOsvServer();
afterAll(() => osv.close());
beforeEach(async () => {
  osv.reset();
  await pool.query("truncate extraction.advisories");
});

const LODASH = "pkg:npm/lodash@4.17.15";
const MINIMIST = "pkg:npm/minimist@1.2.0";
const DEP_SCAN = "warning Vulnerability scanning unavailable (dep-scan not installed)";

describe("OSV.dev", () => {
  it("is asked about names and versions, and its advisories become findings", async () => {
    osv.add(
      record("GHSA-p6mc-m468-83gw", "lodash", {
        aliases: ["CVE-2020-8203"],
        summary: "Prototype pollution",
        severity: [{ type: "CVSS_V4", score: "CVSS:4.0/AV:L/AC:L/AT:P/PR:L/UI:N/VC:H/VI:H/VA:H/SC:N/SI:N/SA:N" }],
      }),
      LODASH,
    );
    const { lines, scan } = await ask([LODASH, MINIMIST]);
    expect(osv.batches).toEqual([[{ package: { purl: LODASH } }, { package: { purl: MINIMIST } }]]);
    expect(osv.requests).toEqual(["POST /v1/querybatch", "GET /v1/vulns/GHSA-p6mc-m468-83gw"]);
    expect(scan).toEqual({
      coverage: { checked: 2, total: 2, notes: [] },
      vulnerabilities: [
        {
          id: "GHSA-p6mc-m468-83gw",
          aliases: ["CVE-2020-8203"],
          cve: "CVE-2020-8203",
          purl: LODASH,
          name: "lodash",
          version: "4.17.15",
          severity: "high",
          score: 7.3,
          summary: "Prototype pollution",
          fixed: ["4.17.19"],
          reachable: null,
          source: "osv.dev",
          url: "https://github.com/advisories/GHSA-p6mc-m468-83gw",
        },
      ],
    });
    expect(lines).toEqual([
      DEP_SCAN,
      "info Asking OSV.dev about 2 packages",
      "info OSV.dev knows 1 advisory for them (1 fetched, 0 in the cache)",
    ]);
  });

  it("lists a vulnerability of several databases once, and no withdrawn one", async () => {
    osv.add(record("GHSA-aaaa-bbbb-cccc", "lodash", { aliases: ["CVE-2020-0001"] }), LODASH);
    osv.add(record("OTHER-1", "lodash", { aliases: ["CVE-2020-0001"] }, "4.17.20"), LODASH);
    osv.add(record("GHSA-dddd-eeee-ffff", "lodash", { withdrawn: "2025-01-01T00:00:00Z" }), LODASH);
    const { scan } = await ask([LODASH]);
    expect(scan?.vulnerabilities.map(({ id, aliases, fixed }) => [id, aliases, fixed])).toEqual([
      ["GHSA-aaaa-bbbb-cccc", ["CVE-2020-0001", "OTHER-1"], ["4.17.19", "4.17.20"]],
    ]);
  });

  it("is right about affected versions, even if the ranges cannot be compared; fixes are of the version's own branch", async () => {
    osv.add({ ...record("A-1", "lodash"), affected: [affectedOf("lodash", "0", "not a version")] }, LODASH);
    osv.add(
      {
        ...record("A-2", "lodash"),
        affected: [affectedOf("lodash", "3.0.0", "3.9.9"), affectedOf("lodash", "4.0.0", "4.17.21")],
      },
      LODASH,
    );
    osv.add({ ...record("A-3", "lodash"), affected: [affectedOf("another-name", "0", "9.9.9")] }, LODASH);
    const { scan } = await ask([LODASH]);
    expect(scan?.vulnerabilities.map(({ id, fixed }) => [id, fixed])).toEqual([
      ["A-1", ["not a version"]],
      ["A-2", ["4.17.21"]],
      ["A-3", []],
    ]);
  });

  it("gets 1,000 queries per request, and further pages are read", async () => {
    const purls = Array.from({ length: 2300 }, (_, at) => `pkg:npm/package-${at}@1.0.0`);
    osv.pageSize = 2;
    const [first, last] = [purls[0]!, purls.at(-1)!];
    for (let at = 0; at < 5; at += 1) osv.add(record(`A-${at}`, "package-0"), first);
    for (let at = 5; at < 8; at += 1) osv.add(record(`A-${at}`, "package-2299"), last);
    const { scan } = await ask(purls);
    expect(osv.batches.map((queries) => queries.length)).toEqual([1000, 1000, 300, 1, 1, 1]);
    const pages = osv.batches.slice(3).flat();
    expect(pages.map((query) => `${query.package?.purl} ${query.page_token}`).sort()).toEqual([
      `${first} 2`,
      `${first} 4`,
      `${last} 2`,
    ]);
    expect(scan?.vulnerabilities.map(({ id }) => id).sort()).toEqual(Array.from({ length: 8 }, (_, at) => `A-${at}`));
    expect(scan?.coverage).toEqual({ checked: 2300, total: 2300, notes: [] });
  });

  it("is asked again with smaller batches if one package URL is rejected, and the rest is checked", async () => {
    const purls = Array.from({ length: 9 }, (_, at) => `pkg:npm/package-${at}@1.0.0`);
    osv.invalid.add(purls[3]!);
    osv.add(record("A-1", "package-8"), purls[8]!);
    const { lines, scan } = await ask(purls);
    expect(scan?.vulnerabilities).toHaveLength(1);
    expect(scan?.coverage).toEqual({ checked: 8, total: 9, notes: ["OSV.dev rejected 1 dependency"] });
    expect(lines).toContain(
      "warning Only 8 of 9 dependencies were checked for vulnerabilities: OSV.dev rejected 1 dependency",
    );
  });

  it("that always has another page is asked a limited number of times, and what it sent is kept", async () => {
    osv.add(record("A-1", "lodash"), LODASH);
    osv.fault = (response, path) => {
      if (path !== "/v1/querybatch") return false;
      const vulns = [{ id: "A-1", modified: "2026-01-01T00:00:00Z" }];
      response.end(JSON.stringify({ results: [{ vulns, next_page_token: "again" }] }));
      return true;
    };
    const { scan } = await ask([LODASH]);
    expect(osv.requests.filter((request) => request.startsWith("POST"))).toHaveLength(1 + LIMITS.extraRequests);
    expect(scan?.vulnerabilities).toHaveLength(1);
    expect(scan?.coverage).toEqual({
      checked: 0,
      total: 1,
      notes: [`OSV.dev did not answer about 1 dependency (limit of ${LIMITS.extraRequests} further requests reached)`],
    });
  });

  it("gets no private names: other registries, git, folders, and names of EXTRACTION_OSV_PRIVATE", async () => {
    const { scan } = await ask(
      [
        LODASH,
        "pkg:npm/%40scope/thing@1.0.0?vcs_url=git%2Bssh%3A%2F%2Fgit.acme.example%2Fthing.git",
        "pkg:pypi/internal@1.0?repository_url=https://pypi.acme.example",
        "pkg:npm/..%2Fsecret@1.0.0",
        "pkg:golang/internal/tools@v1.0.0",
        "pkg:npm/%40acme/plans@1.0.0",
        "pkg:maven/com.acme.secret/core@1.0?type=jar",
        "pkg:npm/linked@file:..%2Flinked",
        "pkg:npm/unpinned",
        "pkg:generic/openssl@3.0.0",
        "pkg:github/actions/checkout@v4",
        "pkg:golang/golang.org/x/text@v0.3.0?type=module#unicode",
        "pkg:composer/symfony/http-kernel@v5.0.0",
      ],
      { EXTRACTION_OSV_PRIVATE: "@acme/*, com.acme.*" },
    );
    expect(
      osv.batches
        .flat()
        .map((query) => query.package?.purl)
        .sort(),
    ).toEqual(["pkg:composer/symfony/http-kernel@v5.0.0", "pkg:golang/golang.org/x/text@0.3.0", LODASH]);
    expect(scan?.coverage).toEqual({
      checked: 3,
      total: 13,
      notes: expect.arrayContaining([
        "2 are of a kind that OSV.dev does not know (generic, github)",
        "4 are not from a public registry",
        "2 are excluded by EXTRACTION_OSV_PRIVATE",
        "2 have no version",
      ]),
    });
  });

  it("gets nothing if no dependency can be sent, and the scan says that nothing was checked", async () => {
    const { lines, missing } = await ask(["pkg:generic/openssl@3.0.0", "pkg:npm/unpinned"]);
    expect(osv.requests).toEqual([]);
    expect(missing).toEqual(["vuln_scan"]);
    expect(lines).toEqual([
      DEP_SCAN,
      "warning Vulnerabilities were not checked: 1 is of a kind that OSV.dev does not know (generic); 1 has no version",
    ]);
  });

  it.each(["none", "off"])("is not asked if EXTRACTION_OSV_URL is %s", async (setting) => {
    const { lines, missing } = await ask([LODASH], { EXTRACTION_OSV_URL: setting });
    expect([osv.requests, missing]).toEqual([[], ["vuln_scan"]]);
    expect(lines).toEqual([
      DEP_SCAN,
      "warning Vulnerabilities were not checked: OSV.dev is turned off (EXTRACTION_OSV_URL), and there are no advisories (EXTRACTION_ADVISORIES)",
    ]);
  });

  it("must be reached by https, except on this machine", () => {
    for (const url of ["http://osv.acme.example", "ftp://127.0.0.1", "api.osv.dev"]) {
      expect(() => readSettings({ EXTRACTION_OSV_URL: url })).toThrow(
        `EXTRACTION_OSV_URL is "${url}" but must be an https URL such as https://api.osv.dev, or "none" to send no requests`,
      );
    }
    expect(readSettings({}).osvUrl).toBe("https://api.osv.dev");
    expect(readSettings({ EXTRACTION_OSV_URL: "https://osv.acme.example" }).osvUrl).toBe("https://osv.acme.example");
  });
});

describe("an advisory", () => {
  it("is fetched once, and again when it has changed", async () => {
    osv.add(record("A-1", "lodash"), LODASH);
    osv.add(record("A-2", "minimist"), MINIMIST);
    const first = await ask([LODASH, MINIMIST]);
    osv.requests = [];
    const second = await ask([LODASH, MINIMIST]);
    expect(osv.requests).toEqual(["POST /v1/querybatch"]);
    expect(second.lines).toContain("info OSV.dev knows 2 advisories for them (0 fetched, 2 in the cache)");
    expect(second.scan).toEqual(first.scan);

    osv.records.set("A-1", { ...record("A-1", "lodash", {}, "4.17.30"), modified: "2026-02-01T00:00:00Z" });
    osv.requests = [];
    const third = await ask([LODASH, MINIMIST]);
    expect(osv.requests).toEqual(["POST /v1/querybatch", "GET /v1/vulns/A-1"]);
    expect(third.scan?.vulnerabilities.find(({ id }) => id === "A-1")?.fixed).toEqual(["4.17.30"]);
  });

  it("is kept among a limited number of others, the most recently used ones", async () => {
    for (const id of ["A-1", "A-2"]) osv.add(record(id, "lodash"), LODASH);
    await ask([LODASH]);
    await pool.query("update extraction.advisories set used_on = '2026-01-01'");
    await ask([LODASH]);
    const { rows: used } = await pool.query("select id from extraction.advisories where used_on = current_date");
    expect(used).toHaveLength(2);
    await pool.query("update extraction.advisories set used_on = '2026-01-01' where id = 'A-1'");
    const { rows: stored } = await pool.query("select advisory from extraction.advisories where id = 'A-2'");
    await storeAdvisories(pool, [{ id: "A-3", modified: "now", advisory: stored[0].advisory }], { max: 2 });
    const { rows } = await pool.query("select id from extraction.advisories order by id");
    expect(rows.map(({ id }) => id)).toEqual(["A-2", "A-3"]);
  });

  it("is fetched without the cache if the cache cannot be used", async () => {
    osv.add(record("A-1", "lodash"), LODASH);
    await pool.query("alter table extraction.advisories rename to advisories_away");
    try {
      const { lines, scan } = await ask([LODASH]);
      expect(scan?.vulnerabilities).toHaveLength(1);
      expect(lines).toContain("warning The cache of advisories cannot be used - all of them are fetched");
    } finally {
      await pool.query("alter table extraction.advisories_away rename to advisories");
    }
  });

  it("is fetched with few others at a time", async () => {
    for (let at = 0; at < 40; at += 1) osv.add(record(`A-${at}`, "lodash"), LODASH);
    // The first ones are answered when the allowed number is open.
    const held: Array<() => void> = [];
    osv.fault = (response, requested) => {
      if (requested === "/v1/querybatch" || held.length === LIMITS.concurrency) return false;
      const id = requested.split("/").at(-1)!;
      held.push(() => response.end(JSON.stringify(osv.records.get(id))));
      if (held.length === LIMITS.concurrency) for (const answer of held) answer();
      return true;
    };
    const { scan } = await ask([LODASH]);
    expect(scan?.vulnerabilities).toHaveLength(40);
    expect(osv.maxConcurrency).toBe(LIMITS.concurrency);
  });

  it("that is missing, invalid, of another id or too large is listed with unknown severity", async () => {
    for (const id of ["A-1", "A-2", "A-3", "A-4", "A-5"]) osv.add(record(id, "lodash"), LODASH);
    osv.records.delete("A-1");
    osv.records.set("A-2", { id: "A-2", modified: "x", affected: "none" });
    osv.records.set("A-3", record("A-9", "lodash"));
    osv.records.set("A-4", record("A-4", "lodash", { details: "x".repeat(5 * 2 ** 20) }));
    const { lines, scan } = await ask([LODASH]);
    expect(scan?.vulnerabilities.map(({ id, severity, url }) => `${id} ${severity} ${url}`)).toEqual([
      "A-5 high null",
      ...["A-1", "A-2", "A-3", "A-4"].map((id) => `${id} unknown https://osv.dev/vulnerability/${id}`),
    ]);
    expect(lines).toContain(
      "warning 4 advisories could not be read (4 are missing or invalid): listed with unknown severity",
    );
  });

  it("beyond the limit is listed with unknown severity", async () => {
    const { advisories } = LIMITS;
    LIMITS.advisories = 3;
    try {
      for (let at = 0; at < 5; at += 1) osv.add(record(`A-${at}`, "lodash"), LODASH);
      const { lines, scan } = await ask([LODASH]);
      expect(scan?.vulnerabilities.filter(({ severity }) => severity === "high")).toHaveLength(3);
      expect(scan?.vulnerabilities).toHaveLength(5);
      expect(lines).toContain(
        "warning 2 advisories could not be read (at most 3 are fetched): listed with unknown severity",
      );
    } finally {
      LIMITS.advisories = advisories;
    }
  });
});

describe("a server that fails", () => {
  it("with 429 and Retry-After is asked again after that time", async () => {
    osv.add(record("A-1", "lodash"), LODASH);
    let refusedAt = 0;
    let repeatedAfterMs = 0;
    osv.fault = (response, path) => {
      if (path !== "/v1/querybatch") return false;
      if (refusedAt > 0) {
        repeatedAfterMs = performance.now() - refusedAt;
        return false;
      }
      refusedAt = performance.now();
      response.writeHead(429, { "retry-after": "1" }).end();
      return true;
    };
    const { scan } = await ask([LODASH]);
    expect(scan?.vulnerabilities).toHaveLength(1);
    expect(repeatedAfterMs).toBeGreaterThanOrEqual(990);
  });

  it("with 429 holds back all requests, not only the refused one", async () => {
    for (let at = 0; at < 12; at += 1) osv.add(record(`A-${at}`, "lodash"), LODASH);
    let refusedAt = 0;
    let early = 0;
    osv.fault = (response, path) => {
      if (path === "/v1/querybatch") return false;
      // Requests that were sent before the refusal could arrive.
      const sinceMs = performance.now() - refusedAt;
      if (refusedAt > 0 && sinceMs > 300 && sinceMs < 990) early += 1;
      if (refusedAt > 0) return false;
      refusedAt = performance.now();
      response.writeHead(429, { "retry-after": new Date(Date.now() + 2500).toUTCString() }).end();
      return true;
    };
    const { scan } = await ask([LODASH]);
    expect([scan?.vulnerabilities.length, early]).toEqual([12, 0]);
  });

  it("and asks to wait for long is not waited for", async () => {
    osv.fault = faultOf(503, { "retry-after": "3600" });
    const { lines, missing } = await ask([LODASH]);
    expect([osv.requests.length, missing]).toEqual([1, ["vuln_scan"]]);
    expect(lines.at(-1)).toBe(
      "warning Vulnerabilities were not checked: OSV.dev did not answer about 1 dependency (HTTP 503, to be repeated after 3600 s)",
    );
  });

  it.each([
    [500, 3, "HTTP 500"],
    [502, 3, "HTTP 502"],
    [403, 1, "HTTP 403"],
    [302, 1, "HTTP 302"],
  ])("with %d is asked %d times; the scan is missing and says why", async (status, tries, reason) => {
    osv.fault = faultOf(status, { location: "/elsewhere", "retry-after": "0" });
    const { lines, missing } = await ask([LODASH]);
    expect(missing).toEqual(["vuln_scan"]);
    expect(lines.at(-1)).toBe(
      `warning Vulnerabilities were not checked: OSV.dev did not answer about 1 dependency (${reason})`,
    );
    expect(osv.requests).toEqual(Array(tries).fill("POST /v1/querybatch"));
  });

  it("once, without Retry-After, is asked again", async () => {
    osv.add(record("A-1", "lodash"), LODASH);
    let failures = 0;
    osv.fault = (response) => {
      failures += 1;
      if (failures > 1) return false;
      response.writeHead(500).end();
      return true;
    };
    expect((await ask([LODASH])).scan?.vulnerabilities).toHaveLength(1);
  });

  it.each([
    ["is not JSON", "<html>Sign in</html>", "its answer is not JSON"],
    ["has no results", "{}", "its answer does not match the request"],
    ["has too few results", '{"results":[]}', "its answer does not match the request"],
  ])("because its answer %s leaves the scan missing", async (_, body, reason) => {
    osv.fault = (response) => Boolean(response.writeHead(200).end(body));
    const { lines, missing } = await ask([LODASH]);
    expect(missing).toEqual(["vuln_scan"]);
    expect(lines.at(-1)).toBe(
      `warning Vulnerabilities were not checked: OSV.dev did not answer about 1 dependency (${reason})`,
    );
  });

  it("because its answer is huge is read up to the limit", async () => {
    let sent = 0;
    osv.fault = (response) => {
      const chunk = Buffer.alloc(2 ** 20, " ");
      const push = () => {
        while (!response.destroyed && sent < 500 && response.write(chunk)) sent += 1;
      };
      response.writeHead(200).on("drain", push);
      push();
      return true;
    };
    const { lines } = await ask([LODASH]);
    expect(lines.at(-1)).toBe(
      "warning Vulnerabilities were not checked: OSV.dev did not answer about 1 dependency (its answer is larger than 32 MB)",
    );
    expect(sent).toBeLessThan(100);
    expect(osv.requests).toHaveLength(1);
  });

  it("because it hangs is given up after EXTRACTION_VULNERABILITIES_SECONDS", async () => {
    osv.fault = () => true;
    const { lines, missing } = await ask([LODASH], { EXTRACTION_VULNERABILITIES_SECONDS: "0.5" });
    expect(missing).toEqual(["vuln_scan"]);
    expect(lines.at(-1)).toBe(
      "warning Vulnerabilities were not checked: OSV.dev did not answer about 1 dependency (not finished after 0.5 s)",
    );
  });

  it("because there is no network leaves the scan missing", async () => {
    const port = await unusedPort();
    const { lines, missing } = await ask([LODASH], { EXTRACTION_OSV_URL: `http://127.0.0.1:${port}` });
    expect(missing).toEqual(["vuln_scan"]);
    expect(lines.at(-1)).toBe(
      `warning Vulnerabilities were not checked: OSV.dev did not answer about 1 dependency (connect ECONNREFUSED 127.0.0.1:${port})`,
    );
  });

  it("midway leaves the scan partly complete, with the findings so far", async () => {
    const purls = Array.from({ length: 1500 }, (_, at) => `pkg:npm/package-${at}@1.0.0`).sort();
    osv.add(record("A-1", "package-0"), purls[0]!);
    osv.fault = (response, path) => {
      if (path !== "/v1/querybatch" || osv.batches.length === 0) return false;
      response.writeHead(503, { "retry-after": "0" }).end();
      return true;
    };
    const { lines, scan } = await ask(purls);
    expect(scan?.coverage).toEqual({
      checked: 1000,
      total: 1500,
      notes: ["OSV.dev did not answer about 500 dependencies (HTTP 503)"],
    });
    expect(scan?.vulnerabilities).toMatchObject([{ id: "A-1", severity: "unknown" }]);
    expect(lines).toContain(
      "warning 1 advisory could not be read (OSV.dev did not answer: HTTP 503): listed with unknown severity",
    );
    expect(lines).toContain(
      "warning Only 1000 of 1500 dependencies were checked for vulnerabilities: OSV.dev did not answer about 500 dependencies (HTTP 503)",
    );
  });

  it("does not delay the cancellation of a job, whose request is closed", async () => {
    let closed = false;
    osv.fault = (response) => {
      response.once("close", () => {
        closed = true;
      });
      return true;
    };
    const id = await start(scanCode([LODASH]));
    await waitFor(() => osv.requests.length > 0, { what: "the request" });
    await stillwake.cancel(id);
    await waitFor(async () => (await stillwake.get(id)).state === "cancelled", { what: "the cancellation" });
    await waitFor(() => closed, { what: "the request to be closed" });
    expect(osv.requests).toHaveLength(1);
  });
});

function affectedOf(name: string, introduced: string, fixed: string) {
  return {
    package: { ecosystem: "npm", name },
    ranges: [{ type: "SEMVER", events: [{ introduced }, { fixed }] }],
    versions: ["4.17.15"],
  };
}

function record(id: string, name: string, more: object = {}, fixed = "4.17.19"): OsvRecord {
  return {
    id,
    modified: "2026-01-01T00:00:00.123456Z",
    summary: "A summary",
    affected: [affectedOf(name, "0", fixed)],
    database_specific: { severity: "HIGH" },
    ...more,
  };
}

function faultOf(status: number, headers: Record<string, string>) {
  return (response: http.ServerResponse) => Boolean(response.writeHead(status, headers).end());
}

async function unusedPort(): Promise<number> {
  const server = http.createServer();
  await new Promise<void>((listening) => server.listen(0, "127.0.0.1", listening));
  const { port } = server.address() as AddressInfo;
  await new Promise((closed) => server.close(closed));
  return port;
}

let scans = 0;

function scanCode(purls: readonly string[], env: Record<string, string> = {}): Parameters<typeof run>[0] {
  scans += 1;
  const folder = path.join(root, `scan-${scans}`);
  fs.mkdirSync(folder);
  const sbom = path.join(folder, "bom.json");
  const components = purls.map((purl) => ({ type: "library", name: purl, purl, "bom-ref": purl }));
  fs.writeFileSync(sbom, JSON.stringify({ bomFormat: "CycloneDX", metadata: {}, components }));
  const settings = readSettings({ EXTRACTION_TOOL_PATH: folder, EXTRACTION_OSV_URL: osv.url, ...env });
  return async (job) => {
    const scan = await job.optional<VulnerabilityScan>("vuln_scan", (step) =>
      scanVulnerabilities(step, { sbom, source: () => Promise.reject(new Error("not needed")), pool, settings }),
    );
    return { scan };
  };
}

/** Scans an SBOM with these package URLs in a job. */
async function ask(purls: readonly string[], env: Record<string, string> = {}) {
  const { job, lines } = await run(scanCode(purls, env));
  const { scan } = (job.output ?? {}) as { scan?: VulnerabilityScan & { coverage: Coverage } };
  return { scan, lines, missing: job.missing };
}
