// Serves files on 127.0.0.1 like the server of a video, with faults: statuses, redirects, connections that are cut or stay silent.
import http from "node:http";
import type { AddressInfo } from "node:net";
import { Readable } from "node:stream";
import { afterAll } from "vitest";

export interface Served {
  body?: Buffer | string;
  type?: string;
  status?: number;
  location?: string;
  /** The connection is cut after this many bytes of each response, in the first `cuts` responses. */
  cutAfter?: number;
  cuts?: number;
  /** Sends this many bytes and then nothing more. */
  stallAfter?: number;
  /** Repeats the body without an end, and without naming a length. */
  endless?: boolean;
  /** Ignores Range. */
  whole?: boolean;
}

export interface MediaServer {
  url: string;
  files: Map<string, Served>;
  /** One per request: "/a.mp4" or "/a.mp4 bytes=100-". */
  requests: string[];
}

/** Call it at the top of a file. */
export async function serveMedia(): Promise<MediaServer> {
  const files = new Map<string, Served>();
  const requests: string[] = [];
  const served = new Map<string, number>();
  const server = http.createServer((request, response) => {
    const path = (request.url ?? "").split("?")[0]!;
    requests.push([path, request.headers.range].filter(Boolean).join(" "));
    const file = files.get(path);
    const times = served.get(path) ?? 0;
    served.set(path, times + 1);
    if (!file) return void response.writeHead(404).end();
    if (file.location) return void response.writeHead(302, { location: file.location }).end();
    if (file.status && file.status !== 200) return void response.writeHead(file.status).end("no");
    const body = Buffer.from(file.body ?? "");
    if (file.endless) {
      response.writeHead(200, { "content-type": file.type ?? "video/mp4" });
      if (request.method === "HEAD") return void response.end();
      const parts = Readable.from(
        (function* () {
          while (true) yield body;
        })(),
      );
      response.on("close", () => parts.destroy());
      return void parts.pipe(response);
    }
    const from = file.whole ? 0 : Number(/^bytes=(\d+)-$/.exec(request.headers.range ?? "")?.[1] ?? 0);
    const headers: Record<string, string | number> = {
      "content-type": file.type ?? "video/mp4",
      "content-length": body.length - from,
      etag: '"one"',
      ...(from > 0 && { "content-range": `bytes ${from}-${body.length - 1}/${body.length}` }),
    };
    response.writeHead(from > 0 ? 206 : 200, headers);
    if (request.method === "HEAD") return void response.end();
    const part = body.subarray(from);
    const stops = file.stallAfter ?? (times < (file.cuts ?? 0) ? file.cutAfter : undefined);
    if (stops === undefined || stops >= part.length) return void response.end(part);
    response.write(part.subarray(0, stops), () => {
      if (file.stallAfter === undefined) response.destroy();
    });
  });
  await new Promise<void>((resolve) => void server.listen(0, "127.0.0.1", resolve));
  afterAll(async () => {
    server.closeAllConnections();
    await new Promise((resolve) => server.close(resolve));
  });
  return { url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`, files, requests };
}
