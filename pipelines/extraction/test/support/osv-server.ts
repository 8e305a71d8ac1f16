// A server with the wire format of OSV.dev's API: POST /v1/querybatch and GET /v1/vulns/{id}. Tests set which packages are
// affected, and faults for single requests.
import http from "node:http";
import type { AddressInfo } from "node:net";

export interface OsvRecord {
  id: string;
  modified: string;
  [field: string]: unknown;
}

interface SentQuery {
  package?: { purl?: string };
  page_token?: string;
}

/** Answers the request itself and returns true, or leaves it to the server. */
export type Fault = (response: http.ServerResponse, path: string) => boolean;

export interface OsvServer {
  url: string;
  /** Ids of advisories by package URL. */
  affected: Map<string, string[]>;
  records: Map<string, OsvRecord>;
  /** Ids per page of one query. */
  pageSize: number;
  /** Package URLs that make the server reject a whole batch. */
  invalid: Set<string>;
  fault: Fault | undefined;
  /** "POST /v1/querybatch" */
  requests: string[];
  /** The queries of each batch. */
  batches: SentQuery[][];
  /** Largest number of requests at the same time. */
  maxConcurrency: number;
  /** Adds an advisory and the packages that it affects. */
  add(record: OsvRecord, ...purls: string[]): void;
  /** Forgets data, faults and requests. */
  reset(): void;
  close(): Promise<void>;
}

export async function startOsvServer(): Promise<OsvServer> {
  let open = 0;
  const self: OsvServer = {
    url: "",
    affected: new Map(),
    records: new Map(),
    pageSize: 1000,
    invalid: new Set(),
    fault: undefined,
    requests: [],
    batches: [],
    maxConcurrency: 0,
    add(record, ...purls) {
      self.records.set(record.id, record);
      for (const purl of purls) self.affected.set(purl, [...(self.affected.get(purl) ?? []), record.id]);
    },
    reset() {
      self.affected.clear();
      self.records.clear();
      self.invalid.clear();
      Object.assign(self, { pageSize: 1000, fault: undefined, requests: [], batches: [], maxConcurrency: 0 });
    },
    async close() {
      server.closeAllConnections();
      await new Promise((closed) => server.close(closed));
    },
  };
  const server = http.createServer((request, response) => {
    open += 1;
    self.maxConcurrency = Math.max(self.maxConcurrency, open);
    response.once("close", () => {
      open -= 1;
    });
    const path = request.url!;
    self.requests.push(`${request.method} ${path}`);
    let text = "";
    request.setEncoding("utf8").on("data", (chunk: string) => {
      text += chunk;
    });
    request.on("end", () => {
      if (self.fault?.(response, path)) return;
      if (request.method === "POST" && path === "/v1/querybatch") answerBatch(self, JSON.parse(text), response);
      else if (request.method === "GET" && path.startsWith("/v1/vulns/")) {
        const record = self.records.get(decodeURIComponent(path.slice("/v1/vulns/".length)));
        if (record) send(response, 200, record);
        else send(response, 404, { code: 5, message: "Bug not found." });
      } else send(response, 404, { code: 5, message: "Not Found" });
    });
  });
  await new Promise<void>((listening) => server.listen(0, "127.0.0.1", listening));
  self.url = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
  return self;
}

function answerBatch(self: OsvServer, { queries }: { queries: SentQuery[] }, response: http.ServerResponse): void {
  self.batches.push(queries);
  if (queries.length > 1000 || queries.some((query) => self.invalid.has(query.package?.purl ?? ""))) {
    send(response, 400, { code: 3, message: "Invalid query." });
    return;
  }
  const results = queries.map((query) => {
    const ids = self.affected.get(query.package?.purl ?? "") ?? [];
    const from = query.page_token === undefined ? 0 : Number(query.page_token);
    const page = ids.slice(from, from + self.pageSize);
    const next = from + self.pageSize;
    return {
      ...(page.length > 0 && { vulns: page.map((id) => ({ id, modified: self.records.get(id)?.modified })) }),
      ...(next < ids.length && { next_page_token: String(next) }),
    };
  });
  send(response, 200, { results });
}

function send(response: http.ServerResponse, status: number, body: unknown): void {
  response.writeHead(status, { "content-type": "application/json" }).end(JSON.stringify(body));
}
