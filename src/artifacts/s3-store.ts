// Stores artifacts in a bucket of S3 or of a compatible service (R2, MinIO, Tigris, B2, Spaces). One request creates an object, on the
// condition that none exists yet, so a late writer cannot overwrite and a dead one leaves nothing incomplete.
import { createHash } from "node:crypto";
import type { ReadableStream } from "node:stream/web";
import { InvalidInput, StillwakeError } from "../errors.ts";
import { type Answer, type Credentials, readAnswer, type S3Settings, s3Requests, toStoreError } from "./s3-request.ts";
import type { ArtifactStore } from "./store.ts";
import { artifactChanged, artifactExists, artifactMissing, checkKey, readVerified } from "./verify-content.ts";

const MAX_PUT_BYTES = 5 * 1024 ** 3;
const MAX_LINK_SECONDS = 300;
/** Features of PUT that not every service supports, from the best combination to none. */
const PUT_FEATURES = [
  { condition: true, checksum: true },
  { condition: false, checksum: true },
  { condition: true, checksum: false },
  { condition: false, checksum: false },
];

export function s3Store(settings: S3Settings, credentials: Credentials): ArtifactStore {
  const requests = s3Requests(settings, credentials);
  // Index into PUT_FEATURES of the combination that this service accepts.
  let supported = 0;

  const store: ArtifactStore = {
    kind: "s3",

    async put(key, file, signal) {
      checkKey(key);
      if (file.size > MAX_PUT_BYTES) throw tooLarge(file.name);
      const headers = { "content-type": file.contentType, "x-amz-meta-sha256": file.sha256 };
      const content = { body: () => readVerified(file), size: file.size, sha256: file.sha256 };
      for (let tried = supported, conflicts = 0; ; ) {
        const { condition, checksum } = PUT_FEATURES[tried]!;
        // Without the condition, another writer can come in between. It writes the same content, because keys are derived from the content.
        if (!condition && (await isStored())) return;
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
        const answer = await readAnswer(response);
        if (response.ok) {
          supported = tried;
          return;
        }
        if (isUnknownHeader(answer) && tried + 1 < PUT_FEATURES.length) tried++;
        // 412: the object exists, possibly from an earlier request of ours whose response was lost.
        else if (answer.status === 412 && conflicts++ < 3) {
          if (await isStored()) return;
        } else if (/SHA256Mismatch|BadDigest/.test(answer.code)) throw artifactChanged(file.name);
        else if (answer.status === 413 || answer.code === "EntityTooLarge") throw tooLarge(file.name);
        else throw toStoreError(answer, settings, `storing ${file.name}`);
      }

      async function isStored(): Promise<boolean> {
        const stored = await store.stat(key, signal);
        if (stored && (stored.size !== file.size || stored.sha256 !== file.sha256)) throw artifactExists(key);
        return stored !== undefined;
      }
    },

    async stat(key, signal) {
      const headers = { "x-amz-checksum-mode": "ENABLED" };
      const response = await requests.send({ method: "HEAD", key: checkKey(key), headers, signal });
      if (response.status === 404) return undefined;
      if (!response.ok) throw toStoreError(await readAnswer(response), settings, `reading the metadata of ${key}`);
      const checksum = response.headers.get("x-amz-checksum-sha256");
      const sha256 = checksum
        ? Buffer.from(checksum, "base64").toString("hex")
        : (response.headers.get("x-amz-meta-sha256") ?? (await hashOf(await store.get(key, signal))));
      return { size: Number(response.headers.get("content-length")), sha256 };
    },

    async get(key, signal) {
      const response = await requests.send({ method: "GET", key: checkKey(key), signal });
      if (response.ok) return response.body as ReadableStream<Uint8Array>;
      const answer = await readAnswer(response);
      if (answer.status === 404 && answer.code !== "NoSuchBucket") throw artifactMissing(key);
      throw toStoreError(answer, settings, `reading ${key}`);
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
        const answer = await readAnswer(response);
        if (!response.ok) throw toStoreError(answer, settings, `listing ${prefix}`);
        const page = answer.text;
        const found = [...page.matchAll(/<Key>([^<]*)<\/Key>/g)].map(([, key]) => fromXml(key!));
        const keys = found.filter((key) => key === start || key.startsWith(`${start}/`));
        // A page has at most 1000 keys, which is also the maximum of one delete request.
        if (keys.length > 0) await removeAll(keys, prefix);
        removed += keys.length;
        const more = /<NextContinuationToken>([^<]*)<\/NextContinuationToken>/.exec(page)?.[1];
        token = more && fromXml(more);
      }
      return removed;
    },

    // An interrupted request leaves nothing behind, because there are no multipart uploads.
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
    const answer = await readAnswer(response);
    if (!response.ok || answer.text.includes("<Error>")) throw toStoreError(answer, settings, `removing ${prefix}`);
  }

  return store;
}

/** s3://bucket/prefix?endpoint=https://…&region=…&style=path|host. Errors do not show the URL and its secrets. */
export function s3StoreAt(text: string, credentials?: Credentials): ArtifactStore {
  const url = URL.canParse(text) ? new URL(text) : rejectUrl("cannot be parsed");
  if (url.username || url.password) rejectUrl("contains credentials; pass them separately");
  const unknown = [...url.searchParams.keys()].find((name) => !["endpoint", "region", "style"].includes(name));
  if (unknown !== undefined) rejectUrl("has a parameter other than endpoint, region and style");
  const bucket = url.host;
  if (!/^[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]$/.test(bucket)) rejectUrl("has no valid bucket name");
  const prefix = url.pathname.replace(/^\/|\/$/g, "");
  if (prefix && !prefix.split("/").every((part) => /^(?!\.\.?$)[\w.-]+$/.test(part))) {
    rejectUrl("has a prefix with characters other than letters, digits, dots, dashes and underscores");
  }
  const region = url.searchParams.get("region") ?? credentials?.region ?? "us-east-1";
  const customEndpoint = url.searchParams.get("endpoint");
  const endpoint = customEndpoint ?? `https://s3.${region}.amazonaws.com`;
  if (!URL.canParse(endpoint) || !/^https?:$/.test(new URL(endpoint).protocol))
    rejectUrl("has an endpoint that does not start with https:// or http://");
  // The certificate does not cover a host name with a bucket that contains dots.
  const style = url.searchParams.get("style") ?? (customEndpoint || bucket.includes(".") ? "path" : "host");
  if (style !== "path" && style !== "host") rejectUrl("has a style other than path and host");
  if (!credentials?.accessKeyId || !credentials.secretAccessKey) {
    throw new InvalidInput("The artifact store needs an access key id and a secret access key", {
      field: "store",
      remedy: "Pass both separately, not in the URL",
    });
  }
  return s3Store({ bucket, prefix: prefix && `${prefix}/`, endpoint: new URL(endpoint), region, style }, credentials);
}

function rejectUrl(problem: string): never {
  throw new InvalidInput(`The URL of the artifact store ${problem}`, {
    field: "store",
    remedy: "Use s3://bucket/prefix?endpoint=https://…&region=…&style=path",
  });
}

function isUnknownHeader({ status, code }: Answer): boolean {
  return status === 501 || (status === 400 && /^(NotImplemented|InvalidArgument)$/.test(code));
}

function tooLarge(name: string): StillwakeError {
  return new StillwakeError("ARTIFACT_TOO_LARGE", `${name} is larger than 5 GB, the limit of one upload to a bucket`, {
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
