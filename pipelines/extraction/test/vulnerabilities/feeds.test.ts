// EPSS and KEV from files and from a server with faults. A feed that cannot be read never loses findings.
import fs from "node:fs";
import http from "node:http";
import type { AddressInfo } from "node:net";
import path from "node:path";
import { gzipSync } from "node:zlib";
import { afterAll, beforeEach, describe, expect, it } from "vitest";
import { recordFigure } from "../../../../test/support/figures.ts";
import { shared } from "../../../kit/test/support/shared-data.ts";
import type { Exploited, Severity, Vulnerability } from "../../src/model.ts";
import { lookUpExploitation, MAX_CVES, readEpss, readKev } from "../../src/vulnerabilities/exploitation.ts";
import { setUpScans } from "../support/scan-job.ts";

const { folder: root, run } = await setUpScans();
const SAMPLE = path.resolve(import.meta.dirname, "../../sample");
const EPSS =
  "#model_version:v1,score_date:2026-01-05T00:00:00Z\ncve,epss,percentile\nCVE-1900-0001,0.25,0.5\nCVE-1900-0002,7e-05,0.1\n";
const KEV = JSON.stringify({
  catalogVersion: "2026.01.05",
  vulnerabilities: [
    { cveID: "CVE-1900-0002", dateAdded: "2026-01-02", dueDate: "2026-01-23", knownRansomwareCampaignUse: "Unknown" },
  ],
});

/** The server's behaviour, and its requests. */
let respond: (request: http.IncomingMessage, response: http.ServerResponse) => void;
let requests: http.IncomingMessage[] = [];
const server = http.createServer((request, response) => {
  requests.push(request);
  respond(request, response);
});
await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
const base = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
beforeEach(() => {
  requests = [];
});
afterAll(() => {
  server.closeAllConnections();
  server.close();
});

describe("exploitation", () => {
  it("is read from files, only for the CVEs that were found", async () => {
    const { known, lines } = await exploitation(["CVE-1900-0007", "CVE-1900-0001", "CVE-1900-4444"], {
      epss: path.join(SAMPLE, "epss.csv"),
      kev: `file://${path.join(SAMPLE, "kev.json")}`,
    });
    expect(known).toEqual({
      "CVE-1900-0001": { epss: 0.05213, percentile: 0.91707, kev: null },
      "CVE-1900-0007": {
        epss: 0.891,
        percentile: 0.995,
        kev: { added: "2026-01-05", due: "2026-01-26", ransomware: true },
      },
    });
    expect(lines).toEqual(["info EPSS of 2026-01-05 has 2 of 3 CVEs, KEV 2026.01.05 lists 1"]);
  });

  it("is not requested without CVEs or feeds", async () => {
    expect(await exploitation([], { epss: `${base}/epss`, kev: `${base}/kev` })).toMatchObject({
      known: {},
      lines: [],
    });
    expect(await exploitation(["CVE-1900-0001"], { epss: "", kev: "" })).toMatchObject({ known: {}, lines: [] });
    expect(requests).toEqual([]);
  });

  it("reports which feeds were read", async () => {
    const [epss, kev] = [path.join(SAMPLE, "epss.csv"), path.join(SAMPLE, "kev.json")];
    const nowhere = path.join(root, "nowhere");
    const readOf = async (feeds: { epss: string; kev: string }, cves = ["CVE-1900-0007"]) =>
      (await exploitation(cves, feeds)).read;
    expect(await readOf({ epss, kev })).toEqual({ epss: true, kev: true });
    expect(await readOf({ epss, kev: nowhere })).toEqual({ epss: true, kev: false });
    expect(await readOf({ epss: nowhere, kev })).toEqual({ epss: false, kev: true });
    expect(await readOf({ epss: "", kev })).toEqual({ epss: false, kev: true });
    expect(await readOf({ epss: nowhere, kev }, [])).toEqual({ epss: true, kev: true });
  });

  it("keeps the stored data with a warning if a feed cannot be read", async () => {
    const broken = path.join(root, "broken.csv");
    fs.writeFileSync(broken, "<html>Sign in</html>");
    const { known, lines } = await exploitation(["CVE-1900-0002"], {
      epss: broken,
      kev: path.join(root, "nowhere.json"),
    });
    expect(known).toEqual({});
    expect(lines.toSorted()).toEqual([
      expect.stringMatching(
        /^warning EPSS cannot be read \(it is not a list of EPSS scores\): the stored data is kept$/,
      ),
      expect.stringMatching(/^warning KEV cannot be read \(.*ENOENT.*\): the stored data is kept$/),
    ]);
  });

  it(`is looked up for ${MAX_CVES} CVEs of the most severe findings, because the result is a checkpoint`, async () => {
    const rows = Array.from({ length: MAX_CVES + 10 }, (_, at) => `CVE-1900-${10_000 + at},0.1234567,0.1234567`);
    const epss = path.join(root, "many.csv");
    fs.writeFileSync(epss, `cve,epss,percentile\n${rows.join("\n")}\n`);
    const cves = rows.map((row) => row.split(",")[0]!);
    const { known, lines } = await exploitation(cves, { epss, kev: "" }, (at) => (at < 10 ? "low" : "high"));
    expect(Object.keys(known)).toHaveLength(MAX_CVES);
    expect(known[cves[0]!]).toBeUndefined();
    expect(lines[0]).toBe(
      `warning Only the ${MAX_CVES} most severe of ${MAX_CVES + 10} CVEs are looked up in EPSS and KEV`,
    );
  });
});

describe("a feed", () => {
  it("is downloaded once a day, gzipped or not, with a conditional request", async () => {
    const cache = newCache();
    const feeds = { epss: `${base}/epss.csv.gz`, kev: `${base}/kev.json` };
    respond = ({ url, headers }, response) => {
      if (headers["if-none-match"] === '"one"') response.writeHead(304).end();
      else response.writeHead(200, { etag: '"one"' }).end(url!.includes("epss") ? gzipSync(EPSS) : KEV);
    };
    const first = await exploitation(["CVE-1900-0001", "CVE-1900-0002"], feeds, undefined, cache);
    expect(first.known["CVE-1900-0002"]).toEqual({
      epss: 7e-5,
      percentile: 0.1,
      kev: { added: "2026-01-02", due: "2026-01-23", ransomware: false },
    });
    expect((await exploitation(["CVE-1900-0001"], feeds, undefined, cache)).known["CVE-1900-0001"]?.epss).toBe(0.25);
    expect(requests).toHaveLength(2);

    ageCopies(cache, 25);
    expect((await exploitation(["CVE-1900-0001"], feeds, undefined, cache)).known["CVE-1900-0001"]?.epss).toBe(0.25);
    expect(requests.map(({ headers }) => headers["if-none-match"])).toEqual([undefined, undefined, '"one"', '"one"']);
    await exploitation(["CVE-1900-0001"], feeds, undefined, cache);
    expect(requests).toHaveLength(4);
  });

  it("that fails is replaced by its cached copy, with a warning that has its date", async () => {
    const cache = newCache();
    const feeds = { epss: `${base}/epss`, kev: "" };
    respond = (_, response) => response.end(EPSS);
    await exploitation(["CVE-1900-0001"], feeds, undefined, cache);
    const day = ageCopies(cache, 49);
    const failures: Array<[string, typeof respond]> = [
      ["HTTP 503", (_, response) => response.writeHead(503).end()],
      ["other side closed", (_, response) => response.destroy()],
      ["it is not a list of EPSS scores", (_, response) => response.writeHead(200).end("<html>Sign in</html>")],
      [
        "other side closed",
        (_, response) => {
          response.writeHead(200, { "content-length": 1000 }).write(EPSS, () => response.destroy());
        },
      ],
    ];
    for (const [reason, failure] of failures) {
      respond = failure;
      const { known, lines } = await exploitation(["CVE-1900-0001"], feeds, undefined, cache);
      expect(known["CVE-1900-0001"]?.epss).toBe(0.25);
      expect(lines[0]).toBe(`warning EPSS could not be downloaded (${reason}): using the copy from ${day}`);
    }
    expect(fs.readdirSync(path.join(cache, "feeds"))).toHaveLength(1);
  });

  it("without a cached copy is missing, with a warning", async () => {
    respond = (_, response) => response.writeHead(404).end();
    const { known, lines } = await exploitation(["CVE-1900-0001"], { epss: `${base}/epss`, kev: "" });
    expect([known, lines]).toEqual([{}, ["warning EPSS could not be downloaded (HTTP 404): the stored data is kept"]]);
  });

  it("with a broken cached copy is downloaded again despite a 304", async () => {
    const cache = newCache();
    const feeds = { epss: `${base}/epss`, kev: "" };
    respond = ({ headers }, response) => {
      if (headers["if-none-match"]) response.writeHead(304).end();
      else response.writeHead(200, { etag: '"one"' }).end(EPSS);
    };
    await exploitation(["CVE-1900-0001"], feeds, undefined, cache);
    const [copy] = copiesIn(cache);
    fs.writeFileSync(copy!, `${fs.readFileSync(copy!, "utf8").split("\n")[0]}\nhalf of`);
    const { known, lines } = await exploitation(["CVE-1900-0001"], feeds, undefined, cache);
    expect([known["CVE-1900-0001"]?.epss, lines.filter((line) => line.startsWith("warning"))]).toEqual([0.25, []]);
  });

  it("follows redirects, but not from https to http and not endlessly", async () => {
    respond = ({ url }, response) => {
      if (url === "/epss") response.writeHead(302, { location: "/epss-2026-01-05" }).end();
      else if (url === "/out") response.writeHead(302, { location: "http://feeds.example/epss" }).end();
      else if (url === "/round") response.writeHead(302, { location: "/round" }).end();
      else response.end(EPSS);
    };
    expect(
      (await exploitation(["CVE-1900-0001"], { epss: `${base}/epss`, kev: "" })).known["CVE-1900-0001"]?.epss,
    ).toBe(0.25);
    for (const [source, reason] of [
      [`${base}/out`, "http://feeds.example is not https"],
      [`${base}/round`, "too many redirects"],
      ["http://feeds.example/epss", "http://feeds.example is not https"],
    ]) {
      const { known, lines } = await exploitation(["CVE-1900-0001"], { epss: source!, kev: "" });
      expect([known, lines]).toEqual([
        {},
        [`warning EPSS could not be downloaded (${reason}): the stored data is kept`],
      ]);
    }
  });

  it("is requested with the password of its URL, which is stored nowhere", async () => {
    respond = ({ headers }, response) => response.writeHead(headers.authorization ? 200 : 401).end(EPSS);
    const cache = newCache();
    const feeds = { epss: `${base.replace("//", "//me:s3cret%21@")}/epss`, kev: "" };
    const { known, lines } = await exploitation(["CVE-1900-0001"], feeds, undefined, cache);
    expect(known["CVE-1900-0001"]?.epss).toBe(0.25);
    expect(requests[0]!.headers.authorization).toBe(`Basic ${Buffer.from("me:s3cret!").toString("base64")}`);
    expect(lines.join() + fs.readFileSync(copiesIn(cache)[0]!, "utf8") + copiesIn(cache)[0]).not.toContain("s3cret");
  });

  it("is complete in the cache after concurrent downloads", async () => {
    const cache = newCache();
    const body = gzipSync(EPSS);
    respond = (_, response) => {
      response.write(body.subarray(0, 10));
      setImmediate(() => response.end(body.subarray(10)));
    };
    const all = await Promise.all(
      Array.from({ length: 4 }, () =>
        exploitation(["CVE-1900-0001"], { epss: `${base}/epss`, kev: "" }, undefined, cache),
      ),
    );
    expect(all.map(({ known }) => known["CVE-1900-0001"]?.epss)).toEqual([0.25, 0.25, 0.25, 0.25]);
    const copies = copiesIn(cache);
    expect(copies).toHaveLength(1);
    const kept = fs.readFileSync(copies[0]!);
    expect(kept.subarray(kept.indexOf("\n") + 1).equals(body)).toBe(true);
  });

  it("is read without a writable cache", async () => {
    const file = path.join(root, "a-file");
    fs.writeFileSync(file, "");
    respond = (_, response) => response.end(EPSS);
    const { known } = await exploitation(["CVE-1900-0001"], { epss: `${base}/epss`, kev: "" }, undefined, file);
    expect(known["CVE-1900-0001"]?.epss).toBe(0.25);
  });

  const kev = shared("data", "kev", "known_exploited_vulnerabilities-2025.08.25.json.gz");
  it.skipIf(!kev)(`of CISA is read as a gzipped file${kev ? "" : " (skipped: ../shared is missing)"}`, async () => {
    const { known, lines } = await exploitation(["CVE-2025-48384", "CVE-2021-44228", "CVE-2020-8203"], {
      epss: shared("data", "epss", "epss_scores-2026-slice.csv")!,
      kev: kev!,
    });
    expect(Object.keys(known).sort()).toEqual(["CVE-2020-8203", "CVE-2021-44228", "CVE-2025-48384"]);
    expect(known["CVE-2025-48384"]).toEqual({
      epss: null,
      percentile: null,
      kev: { added: "2025-08-25", due: "2025-09-15", ransomware: false },
    });
    expect(known["CVE-2021-44228"]).toMatchObject({ epss: 0.99999, kev: { ransomware: true } });
    expect(lines[0]).toBe("info EPSS of 2026-08-07 has 2 of 3 CVEs, KEV 2025.08.25 lists 2");
  });

  it("of 300,000 scores is streamed", async () => {
    async function* body() {
      yield Buffer.from("#score_date:2026-01-05T00:00:00Z\r\ncve,epss,percentile\r\n");
      for (let at = 10_000; at < 310_000; at += 1000) {
        const rows = Array.from({ length: 1000 }, (_, row) => `CVE-1900-${at + row},0.00${row},0.5\r\n`);
        yield Buffer.from(rows.join(""));
      }
    }
    const began = performance.now();
    const { scores, date } = await readEpss(body(), new Set(["CVE-1900-309999", "CVE-1900-10000"]));
    recordFigure("extraction: 300,000 EPSS scores read", Math.round(performance.now() - began), "ms");
    expect([[...scores.keys()], date]).toEqual([["CVE-1900-10000", "CVE-1900-309999"], "2026-01-05"]);
  });

  it("skips invalid rows and entries", async () => {
    const rows = "cve,epss,percentile\nCVE-1900-0001,NaN,1\nCVE-1900-0002,2,0.1\nCVE-1900-0003\nCVE-1900-0004,0.5,0.5";
    const wanted = new Set(["CVE-1900-0001", "CVE-1900-0002", "CVE-1900-0003", "CVE-1900-0004"]);
    expect([...(await readEpss(chunk(rows), wanted)).scores.keys()]).toEqual(["CVE-1900-0004"]);
    const catalog = JSON.stringify({
      vulnerabilities: [null, 5, { cveID: 7 }, { cveID: "CVE-1900-0001", dateAdded: "soon" }],
    });
    expect([...(await readKev(chunk(catalog), wanted)).entries]).toEqual([
      ["CVE-1900-0001", { added: "", due: null, ransomware: false }],
    ]);
    await expect(readKev(chunk("[]"), wanted)).rejects.toThrow("not a catalog");
  });
});

/** Runs the look-up in a step of a job. */
async function exploitation(
  cves: string[],
  feeds: { epss: string; kev: string },
  severity: (at: number) => Severity = () => "high",
  cache = newCache(),
) {
  const found = cves.map((cve, at) => ({ cve, severity: severity(at) }) as Vulnerability);
  const { job, lines } = await run(async (job) => ({
    known: await job.step("vuln_scan/exploitation", (step) => lookUpExploitation(step, found, { feeds, cache })),
  }));
  const { byCve: known, read } = (job.output as { known: Exploited }).known;
  return { known, read, lines };
}

function newCache(): string {
  return fs.mkdtempSync(path.join(root, "cache-"));
}

function copiesIn(cache: string): string[] {
  return fs.readdirSync(path.join(cache, "feeds")).map((name) => path.join(cache, "feeds", name));
}

/** Sets the age of the cached copies in hours; returns their date. */
function ageCopies(cache: string, hours: number): string {
  const then = new Date(Date.now() - hours * 3600_000);
  for (const copy of copiesIn(cache)) fs.utimesSync(copy, then, then);
  return then.toISOString().slice(0, 10);
}

async function* chunk(text: string): AsyncIterable<Uint8Array> {
  yield Buffer.from(text);
}
