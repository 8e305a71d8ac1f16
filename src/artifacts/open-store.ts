// openStore() chooses an artifact store by URL. Apart from store.ts, because the client must not import the S3 store.
import { InvalidInput } from "../errors.ts";
import { fileStoreAt } from "./file-store.ts";
import type { Credentials } from "./s3-request.ts";
import { s3StoreAt } from "./s3-store.ts";
import type { ArtifactStore } from "./store.ts";

export type { Credentials } from "./s3-request.ts";
export type { ArtifactStore } from "./store.ts";

/** `file:///absolute`, `file:./relative`, or `s3://bucket/prefix?endpoint=https://…&region=…&style=path|host` with credentials. */
export function openStore(url: string, credentials?: Credentials): ArtifactStore {
  if (url.startsWith("file:")) return fileStoreAt(url);
  if (url.startsWith("s3:")) return s3StoreAt(url, credentials);
  throw new InvalidInput("The URL of the artifact store must start with file: or s3:", {
    field: "store",
    remedy: "Use file:///absolute/directory, or s3://bucket/prefix?endpoint=https://…&region=…",
  });
}
