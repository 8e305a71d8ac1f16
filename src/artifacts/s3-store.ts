// Artifacts in a bucket of S3 or of one of its relatives (R2, MinIO, Tigris, B2, Spaces). An object comes to be with the one request that
// carries all of it, under the condition that there is none yet, so a late writer cannot overwrite and a dead one leaves nothing half.
import { createHash } from "node:crypto";
import type { ReadableStream } from "node:stream/web";
import { InvalidInput, StillwakeError } from "../errors.ts";
import { type Answer, answerOf, type Credentials, refusal, type S3Settings, s3Requests } from "./s3-request.ts";
import { type ArtifactStore, artifactChanged, artifactExists, artifactMissing, checkKey, contentOf } from "./store.ts";

const ONE_PIECE = 5 * 1024 ** 3;
const MAX_LINK_SECONDS = 300;
/** What a put may ask for beyond the plain S3 of old, in the order in which it is given up. */
const DIALECTS = [
  { condition: true, checksum: true },
  { condition: false, checksum: true },
  { condition: true, checksum: false },
  { condition: false, checksum: false },
];

export function s3Store(settings: S3Settings, credentials: Credentials): ArtifactStore {
  const requests = s3Requests(settings, credentials);
  // Not every relative knows every header. What one has refused is not asked of it again.
  let dialect = 0;

  const store: ArtifactStore = {
    kind: "s3",

    async put(key, file, signal) {
      checkKey(key);
      if (file.size > ONE_PIECE) throw tooLarge(file.name);
      const headers = { "content-type": file.contentType, "x-amz-meta-sha256": file.sha256 };
      const content = { body: () => contentOf(file), size: file.size, sha256: file.sha256 };
      for (let tried = dialect, losses = 0; ; ) {
        const { condition, checksum } = DIALECTS[tried]!;
        // Without the condition there is a moment between look and write. Our keys name their content, so it does no harm there.
        if (!condition && (await isThere())) return;
        const response = await requests.send({
          method: "PUT",
          key,
          headers: {
            ...headers,
            ...(condition && { "if-none-match": "*" }),
            ...(checksum && { "x-amz-checksum-sha256": Buffer.from(file.sha256, "hex").toString("base64") }),
          },
          ...content,
          signal,
        });
        const answer = await answerOf(response);
        if (response.ok) {
          dialect = tried;
          return;
        }
        if (isUnknownHeader(answer) && tried + 1 < DIALECTS.length) tried++;
        // Somebody was first: perhaps we ourselves, in a try whose answer was lost.
        else if (answer.status === 412 && losses++ < 3) {
          if (await isThere()) return;
        } else if (/SHA256Mismatch|BadDigest/.test(answer.code)) throw artifactChanged(file.name);
        else if (answer.status === 413 || answer.code === "EntityTooLarge") throw tooLarge(file.name);
        else throw refusal(answer, settings, `storing ${file.name}`);
      }

      async function isThere(): Promise<boolean> {
        const there = await store.stat(key, signal);
        if (there && (there.size !== file.size || there.sha256 !== file.sha256)) throw artifactExists(key);
        return there !== undefined;
      }
    },

    async stat(key, signal) {
      const headers = { "x-amz-checksum-mode": "ENABLED" };
      const response = await requests.send({ method: "HEAD", key: checkKey(key), headers, signal });
      if (response.status === 404) return undefined;
      if (!response.ok) throw refusal(await answerOf(response), settings, `looking at ${key}`);
      const checksum = response.headers.get("x-amz-checksum-sha256");
      const sha256 = checksum
        ? Buffer.from(checksum, "base64").toString("hex")
        : (response.headers.get("x-amz-meta-sha256") ?? (await hashOf(await store.get(key, signal))));
      return { size: Number(response.headers.get("content-length")), sha256 };
    },

    async get(key, signal) {
      const response = await requests.send({ method: "GET", key: checkKey(key), signal });
      if (response.ok) return response.body as ReadableStream<Uint8Array>;
      const answer = await answerOf(response);
      if (answer.status === 404 && answer.code !== "NoSuchBucket") throw artifactMissing(key);
      throw refusal(answer, settings, `reading ${key}`);
    },

    async link(key, { fileName, seconds }) {
      return requests.presign(checkKey(key), Math.max(1, Math.min(Math.floor(seconds), MAX_LINK_SECONDS)), {
        "response-content-disposition": attachment(fileName),
      });
    },

    async remove(prefix) {
      const start = settings.prefix + checkKey(prefix);
      let removed = 0;
      for (let token: string | undefined = ""; token !== undefined; ) {
        const response = await requests.send({
          method: "GET",
          query: { "list-type": "2", prefix: start, ...(token && { "continuation-token": token }) },
        });
        const answer = await answerOf(response);
        if (!response.ok) throw refusal(answer, settings, `listing ${prefix}`);
        const page = answer.text;
        const found = [...page.matchAll(/<Key>([^<]*)<\/Key>/g)].map(([, key]) => fromXml(key!));
        const keys = found.filter((key) => key === start || key.startsWith(`${start}/`));
        // A page has at most as many keys as one request may remove.
        if (keys.length > 0) await removeAll(keys, prefix);
        removed += keys.length;
        const more = /<NextContinuationToken>([^<]*)<\/NextContinuationToken>/.exec(page)?.[1];
        token = more && fromXml(more);
      }
      return removed;
    },

    // A request that was cut off left nothing: there is no upload in several parts here.
    async sweep() {
      return 0;
    },
  };

  async function removeAll(keys: string[], prefix: string): Promise<void> {
    const objects = keys.map((key) => `<Object><Key>${toXml(key)}</Key></Object>`).join("");
    const body = `<Delete><Quiet>true</Quiet>${objects}</Delete>`;
    const response = await requests.send({
      method: "POST",
      query: { delete: "" },
      headers: { "content-md5": createHash("md5").update(body).digest("base64"), "content-type": "application/xml" },
      body: () => body,
      size: Buffer.byteLength(body),
      sha256: createHash("sha256").update(body).digest("hex"),
    });
    const answer = await answerOf(response);
    if (!response.ok || answer.text.includes("<Error>")) throw refusal(answer, settings, `removing ${prefix}`);
  }

  return store;
}

/** s3://bucket/prefix?endpoint=https://…&region=…&style=path|host. Nothing of a wrong URL is repeated: there may be a secret in it. */
export function s3StoreAt(text: string, credentials?: Credentials): ArtifactStore {
  const url = URL.canParse(text) ? new URL(text) : refuseUrl("cannot be read");
  if (url.username || url.password) refuseUrl("contains credentials; give them apart");
  const unknown = [...url.searchParams.keys()].find((name) => !["endpoint", "region", "style"].includes(name));
  if (unknown !== undefined) refuseUrl("has a parameter other than endpoint, region and style");
  const bucket = url.host;
  if (!/^[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]$/.test(bucket)) refuseUrl("names no valid bucket");
  const prefix = url.pathname.replace(/^\/|\/$/g, "");
  if (prefix && !prefix.split("/").every((part) => /^(?!\.\.?$)[\w.-]+$/.test(part))) {
    refuseUrl("has a prefix with other characters than letters, digits, dots, dashes and underscores");
  }
  const region = url.searchParams.get("region") ?? credentials?.region ?? "us-east-1";
  const given = url.searchParams.get("endpoint");
  const endpoint = given ?? `https://s3.${region}.amazonaws.com`;
  if (!URL.canParse(endpoint) || !/^https?:$/.test(new URL(endpoint).protocol))
    refuseUrl("has an endpoint without https://");
  // A bucket with dots in its name has no certificate under its own host name.
  const style = url.searchParams.get("style") ?? (given || bucket.includes(".") ? "path" : "host");
  if (style !== "path" && style !== "host") refuseUrl("has a style other than path and host");
  if (!credentials?.accessKeyId || !credentials.secretAccessKey) {
    throw new InvalidInput("The artifact store needs an access key id and a secret access key", {
      field: "store",
      remedy: "Give both beside the URL, not in it",
    });
  }
  return s3Store({ bucket, prefix: prefix && `${prefix}/`, endpoint: new URL(endpoint), region, style }, credentials);
}

function refuseUrl(problem: string): never {
  throw new InvalidInput(`The URL of the artifact store ${problem}`, {
    field: "store",
    remedy: "Write it as s3://bucket/prefix?endpoint=https://…&region=…&style=path",
  });
}

function isUnknownHeader({ status, code }: Answer): boolean {
  return status === 501 || (status === 400 && /^(NotImplemented|InvalidArgument)$/.test(code));
}

function tooLarge(name: string): StillwakeError {
  return new StillwakeError("ARTIFACT_TOO_LARGE", `${name} is larger than the 5 GB a bucket takes in one piece`, {
    remedy: "Compress it, or split it into several artifacts",
  });
}

async function hashOf(content: AsyncIterable<Uint8Array>): Promise<string> {
  const hash = createHash("sha256");
  for await (const block of content) hash.update(block);
  return hash.digest("hex");
}

function attachment(fileName: string): string {
  const simple = fileName.replaceAll(/[^\w .-]/g, "_");
  const exact = encodeURIComponent(fileName).replaceAll(
    /['()*]/g,
    (c) => `%${c.charCodeAt(0).toString(16).toUpperCase()}`,
  );
  return `attachment; filename="${simple}"; filename*=UTF-8''${exact}`;
}

const entities: Record<string, string> = { amp: "&", lt: "<", gt: ">", quot: '"', apos: "'" };

function fromXml(text: string): string {
  return text.replaceAll(/&(amp|lt|gt|quot|apos);/g, (_, name) => entities[name]!);
}

function toXml(text: string): string {
  return text.replaceAll(/[&<>]/g, (c) => ({ "&": "&amp;", "<": "&lt;", ">": "&gt;" })[c]!);
}
