// A fake S3 server: keeps objects in memory, checks signatures and hashes like the real one, and can inject failures.
// It shares no code with the client; `computeSignature` is checked against the example in Amazon's documentation.
import { createHash, createHmac, timingSafeEqual } from "node:crypto";
import http from "node:http";
import type { AddressInfo } from "node:net";

interface StoredObject {
  body: Buffer;
  headers: Record<string, string>;
}

export interface SignedRequest {
  method: string;
  /** As sent, including the query. */
  url: string;
  headers: Record<string, string>;
  signedHeaders: string[];
  /** The hash of the body in the signature. */
  payload: string;
  amzDate: string;
  region: string;
  /** The signature parameter of the query is not signed. */
  presigned?: boolean;
}

interface Failure {
  method: string;
  status: number;
  code?: string;
  headers?: Record<string, string>;
  /** Close the connection instead of responding. */
  cut?: boolean;
  /** Respond to a GET with half of the object, and close the connection. */
  half?: boolean;
  /** Do the work before failing, as when only the response is lost. */
  after?: boolean;
}

export interface S3Server {
  endpoint: string;
  bucket: string;
  credentials: { accessKeyId: string; secretAccessKey: string };
  objects: Map<string, StoredObject>;
  /** One line per request, such as "PUT /bucket/key 200". */
  log: string[];
  failures: Failure[];
  /** Request headers that this server rejects as unknown. */
  unknownHeaders: Map<string, { status: number; code: string }>;
  /** Added to the server's clock. */
  skewMs: number;
  /** Omits x-amz-checksum-sha256 and metadata from its responses. */
  forgetful: boolean;
  /** Accepts any hash, like a careless S3 implementation. */
  careless: boolean;
  /** Called with the number of body bytes as they arrive. */
  onBytes: (soFar: number) => void;
  close(): Promise<void>;
}

class Refusal extends Error {
  readonly status: number;
  readonly code: string;

  constructor(status: number, code: string) {
    super(code);
    this.status = status;
    this.code = code;
  }
}

export async function startS3(bucket = "artifacts"): Promise<S3Server> {
  const credentials = {
    accessKeyId: "AKIDTESTTESTTEST",
    secretAccessKey: "a secret that is nowhere else in this test",
  };
  const state: S3Server = {
    endpoint: "",
    bucket,
    credentials,
    objects: new Map(),
    log: [],
    failures: [],
    unknownHeaders: new Map(),
    skewMs: 0,
    forgetful: false,
    careless: false,
    onBytes: () => {},
    close: async () => {
      server.closeAllConnections();
      await new Promise((resolve) => server.close(resolve));
    },
  };
  const server = http.createServer(async (request, response) => {
    const headers = Object.fromEntries(Object.entries(request.headers).map(([name, value]) => [name, String(value)]));
    const method = request.method ?? "";
    const url = new URL(request.url ?? "/", `http://${headers.host}`);
    const answer = (status: number, sent: Record<string, string> = {}, body: string | Buffer = "") => {
      state.log.push(`${method} ${url.pathname} ${status}`);
      response.writeHead(status, {
        "content-length": String(sent["content-length"] ?? Buffer.byteLength(body)),
        ...sent,
      });
      response.end(method === "HEAD" ? "" : body);
    };
    try {
      const chunks: Buffer[] = [];
      let size = 0;
      for await (const chunk of request) {
        chunks.push(chunk);
        size += chunk.length;
        state.onBytes(size);
      }
      const body = Buffer.concat(chunks);
      const failing = state.failures.findIndex((failure) => failure.method === method);
      const failure = failing < 0 ? undefined : state.failures.splice(failing, 1)[0];
      if (!failure || failure.after || failure.half) {
        verify(state, method, request.url ?? "", url, headers, body);
        const [status, sent, text] = act(state, method, url, headers, body);
        if (!failure) return answer(status, sent, text);
        if (failure.half) {
          state.log.push(`${method} ${url.pathname} half`);
          const content = Buffer.from(text ?? "");
          response.writeHead(status, sent);
          return void response.write(content.subarray(0, content.length / 2), () => request.socket.destroy());
        }
      }
      if (failure.cut) {
        state.log.push(`${method} ${url.pathname} cut`);
        return void request.socket.destroy();
      }
      answer(failure.status, failure.headers, errorXml(failure.code ?? "InternalError", credentials.accessKeyId));
    } catch (error) {
      if (error instanceof Refusal) answer(error.status, {}, errorXml(error.code, credentials.accessKeyId));
      else state.log.push(`${method} ${url.pathname} broken off`);
    }
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  state.endpoint = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
  return state;
}

/** AWS Signature Version 4. */
export function computeSignature(request: SignedRequest, secretAccessKey: string): string {
  const [path = "/", query = ""] = request.url.split("?");
  const parameters = query
    .split("&")
    .filter((pair) => pair !== "")
    .map((pair) => pair.split("=").map((text) => decodeURIComponent(text.replaceAll("+", "%2B"))))
    .filter(([name]) => !(request.presigned && name === "X-Amz-Signature"))
    .map(([name = "", value = ""]) => `${uriEncode(name)}=${uriEncode(value)}`)
    .sort();
  const canonical = [
    request.method,
    decodeURIComponent(path).split("/").map(uriEncode).join("/"),
    parameters.join("&"),
    ...request.signedHeaders.map((name) => `${name}:${(request.headers[name] ?? "").trim().replaceAll(/\s+/g, " ")}`),
    "",
    request.signedHeaders.join(";"),
    request.payload,
  ].join("\n");
  const day = request.amzDate.slice(0, 8);
  const scope = `${day}/${request.region}/s3/aws4_request`;
  const text = ["AWS4-HMAC-SHA256", request.amzDate, scope, sha256(canonical)].join("\n");
  const hmac = (key: string | Buffer, data: string) => createHmac("sha256", key).update(data).digest();
  const key = [request.region, "s3", "aws4_request"].reduce(hmac, hmac(`AWS4${secretAccessKey}`, day));
  return hmac(key, text).toString("hex");
}

function verify(
  state: S3Server,
  method: string,
  sent: string,
  url: URL,
  headers: Record<string, string>,
  body: Buffer,
): void {
  const presigned = url.searchParams.has("X-Amz-Signature");
  const header = /^AWS4-HMAC-SHA256 Credential=(\S+), SignedHeaders=(\S+), Signature=(\w+)$/.exec(
    headers.authorization ?? "",
  );
  const [credential = "", signedHeaders = "", signature = ""] = presigned
    ? ["Credential", "SignedHeaders", "Signature"].map((name) => url.searchParams.get(`X-Amz-${name}`) ?? "")
    : (header?.slice(1) ?? []);
  const amzDate = (presigned ? url.searchParams.get("X-Amz-Date") : headers["x-amz-date"]) ?? "";
  if (!signature) throw new Refusal(403, "AccessDenied");
  const [accessKeyId, , region = ""] = credential.split("/");
  if (accessKeyId !== state.credentials.accessKeyId) throw new Refusal(403, "InvalidAccessKeyId");
  const payload = presigned ? "UNSIGNED-PAYLOAD" : (headers["x-amz-content-sha256"] ?? "");
  const names = signedHeaders.split(";");
  if (
    !names.includes("host") ||
    Object.keys(headers).some((name) => name.startsWith("x-amz-") && !names.includes(name))
  ) {
    throw new Refusal(403, "AccessDenied");
  }
  const request = { method, url: sent, headers, signedHeaders: names, payload, amzDate, region, presigned };
  const wanted = computeSignature(request, state.credentials.secretAccessKey);
  if (signature.length !== 64 || !timingSafeEqual(Buffer.from(signature), Buffer.from(wanted))) {
    throw new Refusal(403, "SignatureDoesNotMatch");
  }
  const signedAt = Date.parse(amzDate.replace(/(\d{4})(\d\d)(\d\d)T(\d\d)(\d\d)(\d\d)Z/, "$1-$2-$3T$4:$5:$6Z"));
  const ageMs = Date.now() + state.skewMs - signedAt;
  if (presigned && ageMs > Number(url.searchParams.get("X-Amz-Expires")) * 1000) throw new Refusal(403, "AccessDenied");
  if (!presigned && Math.abs(ageMs) > 15 * 60_000) throw new Refusal(403, "RequestTimeTooSkewed");
  if (!presigned && !state.careless && payload !== sha256(body)) throw new Refusal(400, "XAmzContentSHA256Mismatch");
}

type Reply = [status: number, headers?: Record<string, string>, body?: string | Buffer];

function act(state: S3Server, method: string, url: URL, headers: Record<string, string>, body: Buffer): Reply {
  const [bucket, ...rest] = url.pathname.slice(1).split("/").map(decodeURIComponent);
  const key = rest.join("/");
  if (bucket !== state.bucket) throw new Refusal(404, "NoSuchBucket");
  if (method === "GET" && url.searchParams.has("list-type")) return list(state, url);
  if (method === "POST" && url.searchParams.has("delete")) return removeAll(state, headers, body);
  if (method === "PUT") return put(state, key, headers, body);
  const object = state.objects.get(key);
  if (!object) throw new Refusal(404, "NoSuchKey");
  const returned = Object.entries(object.headers).filter(
    ([name]) =>
      name === "content-type" ||
      (!state.forgetful && (name !== "x-amz-checksum-sha256" || headers["x-amz-checksum-mode"] === "ENABLED")),
  );
  const disposition = url.searchParams.get("response-content-disposition");
  return [
    200,
    {
      ...Object.fromEntries(returned),
      "content-length": String(object.body.length),
      ...(disposition && { "content-disposition": disposition }),
    },
    object.body,
  ];
}

function put(state: S3Server, key: string, headers: Record<string, string>, body: Buffer): Reply {
  for (const [name, { status, code }] of state.unknownHeaders) if (headers[name]) throw new Refusal(status, code);
  if (headers["content-length"] === undefined) throw new Refusal(411, "MissingContentLength");
  if (headers["if-none-match"] === "*" && state.objects.has(key)) throw new Refusal(412, "PreconditionFailed");
  const checksum = headers["x-amz-checksum-sha256"];
  if (checksum && !state.careless && checksum !== createHash("sha256").update(body).digest("base64")) {
    throw new Refusal(400, "BadDigest");
  }
  const kept = Object.entries(headers).filter(([name]) =>
    /^(content-type|x-amz-meta-.*|x-amz-checksum-sha256)$/.test(name),
  );
  state.objects.set(key, { body, headers: Object.fromEntries(kept) });
  return [200];
}

/** Two keys per page, so that every listing has several pages. */
function list(state: S3Server, url: URL): Reply {
  const prefix = url.searchParams.get("prefix") ?? "";
  const after = url.searchParams.get("continuation-token") ?? "";
  const keys = [...state.objects.keys()].filter((key) => key.startsWith(prefix) && key > after).sort();
  const page = keys.slice(0, 2);
  const more = keys.length > 2 ? `<NextContinuationToken>${page[1]}</NextContinuationToken>` : "";
  const contents = page.map((key) => `<Contents><Key>${key}</Key></Contents>`).join("");
  return [200, {}, `<ListBucketResult>${contents}${more}</ListBucketResult>`];
}

function removeAll(state: S3Server, headers: Record<string, string>, body: Buffer): Reply {
  if (headers["content-md5"] !== createHash("md5").update(body).digest("base64"))
    throw new Refusal(400, "InvalidDigest");
  for (const [, key] of body.toString().matchAll(/<Key>([^<]*)<\/Key>/g)) state.objects.delete(key!);
  return [200, {}, "<DeleteResult/>"];
}

/** The real S3 also repeats the key id. */
function errorXml(code: string, accessKeyId: string): string {
  return `<?xml version="1.0"?><Error><Code>${code}</Code><AWSAccessKeyId>${accessKeyId}</AWSAccessKeyId></Error>`;
}

function uriEncode(text: string): string {
  return encodeURIComponent(text).replaceAll(/[!'()*]/g, (c) => `%${c.charCodeAt(0).toString(16).toUpperCase()}`);
}

function sha256(data: string | Buffer): string {
  return createHash("sha256").update(data).digest("hex");
}
