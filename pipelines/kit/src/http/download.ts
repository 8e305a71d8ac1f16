// Downloads the file at a URL of a user to a local file, in constant memory. A connection that breaks or stays silent is resumed by
// Range. Addresses are checked by the guard; size and silence are limited.
import fs, { type FileHandle } from "node:fs/promises";
import { type AddressGuard, BlockedAddress } from "stillwake/worker";
import { type GetResponse, guardedGet } from "./guarded-get.ts";

export interface Download {
  size: number;
  /** How often the connection was resumed by Range. */
  resumed: number;
}

const MAX_RESUMES = 20;

export interface DownloadOptions {
  guard: AddressGuard;
  signal: AbortSignal;
  maxBytes: number;
  /** Longest time without a byte. */
  silenceMs: number;
  userAgent: string;
  onProgress(done: number, total: number | undefined): void;
  /** The connection was lost after `done` bytes. */
  onResume(done: number, reason: string): void;
}

/** `reason`: for "upstream", in words such as "status 503". */
export class DownloadError extends Error {
  override readonly name = "DownloadError";
  readonly kind: "not found" | "forbidden" | "blocked" | "too large" | "upstream";
  readonly reason: string;

  constructor(kind: DownloadError["kind"], reason: string, cause?: unknown) {
    super(`The download failed: ${reason}`, cause === undefined ? undefined : { cause });
    this.kind = kind;
    this.reason = reason;
  }
}

/** Undefined: the address is a page. Throws a DownloadError, or the error of the disk. */
export async function download(address: string, file: string, options: DownloadOptions): Promise<Download | undefined> {
  const target = await fs.open(file, "w", 0o600);
  const transfer: Transfer = { url: new URL(address), done: 0, total: undefined, validator: "", resumed: 0 };
  try {
    for (let failures = 0; ; failures++) {
      const before = transfer.done;
      try {
        if ((await receive(transfer, target, options)) === "page") return undefined;
        return { size: transfer.done, resumed: transfer.resumed };
      } catch (error) {
        options.signal.throwIfAborted();
        if (!(error instanceof Interrupted)) throw error;
        // Only tries without a single new byte in a row are limited.
        if (transfer.done > before) failures = 0;
        if (transfer.done === 0 || failures >= MAX_RESUMES)
          throw new DownloadError("upstream", error.reason, error.cause);
        transfer.resumed += 1;
        options.onResume(transfer.done, error.reason);
      }
    }
  } finally {
    await target.close();
  }
}

/** The connection ended before the file did. */
class Interrupted extends Error {
  readonly reason: string;

  constructor(reason: string, cause: unknown) {
    super(reason, { cause });
    this.reason = reason;
  }
}

interface Transfer {
  url: URL;
  done: number;
  total: number | undefined;
  /** ETag or date, so that a file that changed meanwhile is not mixed with its old content. */
  validator: string;
  resumed: number;
}

async function receive(transfer: Transfer, target: FileHandle, options: DownloadOptions): Promise<"whole" | "page"> {
  const { guard, signal, maxBytes, silenceMs, userAgent } = options;
  const silence = new AbortController();
  const timer = setTimeout(() => silence.abort(), silenceMs);
  const resuming = transfer.done > 0;
  try {
    const response = await guardedGet(transfer.url, {
      guard,
      signal: AbortSignal.any([signal, silence.signal]),
      headers: {
        accept: "video/*, audio/*;q=0.8, */*;q=0.5",
        "accept-encoding": "identity",
        "user-agent": userAgent,
        ...(resuming && { range: `bytes=${transfer.done}-` }),
        ...(resuming && transfer.validator && { "if-range": transfer.validator }),
      },
    });
    const { body } = response;
    try {
      if (!resuming && isPage(response)) return "page";
      beginPart(response, transfer, maxBytes);
      for await (const chunk of body as AsyncIterable<Buffer>) {
        timer.refresh();
        if (transfer.done + chunk.length > maxBytes) throw tooLarge();
        await target.write(chunk, 0, chunk.length, transfer.done);
        transfer.done += chunk.length;
        options.onProgress(transfer.done, transfer.total);
      }
    } finally {
      body.destroy();
    }
    if (transfer.total !== undefined && transfer.done < transfer.total) throw new Interrupted("cut off", undefined);
    await target.truncate(transfer.done);
    return "whole";
  } catch (error) {
    if (silence.signal.aborted) throw new Interrupted("no data for a while", error);
    throw toDownloadError(error, resuming);
  } finally {
    clearTimeout(timer);
  }
}

/** Checks the status, and from which byte this response continues. */
function beginPart({ status, headers }: GetResponse, transfer: Transfer, maxBytes: number): void {
  const range = /^bytes (\d+)-\d+\/(\d+)$/.exec(headers["content-range"] ?? "");
  if (status === 206 && Number(range?.[1]) === transfer.done) {
    transfer.total = Number(range?.[2]);
  } else if (status === 200) {
    // The server does not resume, or the file has changed: from the beginning.
    transfer.done = 0;
    transfer.total = headers["content-length"] === undefined ? undefined : Number(headers["content-length"]);
  } else if (status === 404 || status === 410) {
    throw new DownloadError("not found", `status ${status}`);
  } else if (status === 401 || status === 403) {
    throw new DownloadError("forbidden", `status ${status}`);
  } else {
    throw new DownloadError("upstream", status === 429 ? "429, too many requests" : `status ${status}`);
  }
  transfer.validator = String(headers.etag?.startsWith("W/") ? "" : (headers.etag ?? headers["last-modified"] ?? ""));
  if ((transfer.total ?? 0) > maxBytes) throw tooLarge();
}

function isPage({ status, headers }: GetResponse): boolean {
  return status === 200 && /^(text\/html|application\/xhtml\+xml)\b/i.test(headers["content-type"] ?? "");
}

function toDownloadError(error: unknown, resuming: boolean): unknown {
  const { code = "", errors } = error as { code?: string; errors?: unknown[] };
  if (error instanceof BlockedAddress || errors?.some((one) => one instanceof BlockedAddress)) {
    return new DownloadError("blocked", "the address is not allowed", error);
  }
  if (code === "INVALID_URL" || code === "HTTPS_ONLY")
    return new DownloadError("blocked", "the address is not allowed", error);
  if (/^(ECONNRESET|EPIPE|ERR_STREAM_PREMATURE_CLOSE|HPE_\w+)$/.test(code))
    return new Interrupted("connection lost", error);
  if (code === "DNS_FAILED") return new DownloadError("upstream", "its name was not found", error);
  if (code === "REDIRECT") return new DownloadError("upstream", "too many redirects", error);
  if (/^(E[A-Z]+|CERT_\w+|\w*(SSL|TLS|CERT)\w*)$/.test(code) && !/^(ENOSPC|EDQUOT|EIO|EFBIG)$/.test(code)) {
    return resuming ? new Interrupted("no connection", error) : new DownloadError("upstream", "no connection", error);
  }
  return error;
}

function tooLarge(): DownloadError {
  return new DownloadError("too large", "it is larger than the limit");
}
