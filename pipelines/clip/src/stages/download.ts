// Downloads the file at a URL. A connection that breaks or stays silent is resumed by Range; a page is reported to the caller, which
// leaves it to yt-dlp.
import fs, { type FileHandle } from "node:fs/promises";
import path from "node:path";
import { type GetResponse, guardedGet } from "@stillwake/kit/http/guarded-get";
import { type AddressGuard, BlockedAddress, type StepHandle } from "stillwake/worker";
import { clipError } from "../failures.ts";
import type { Limits } from "../settings.ts";

export interface Download {
  size: number;
  /** How often the connection was resumed by Range. */
  resumed: number;
}

const MAX_RESUMES = 20;

/** Undefined: the address is a page. `file` is created in the scratch directory. */
export async function download(
  step: StepHandle,
  address: string,
  file: string,
  guard: AddressGuard,
  limits: Pick<Limits, "sourceBytes" | "silenceMs">,
): Promise<Download | undefined> {
  const target = await fs.open(path.join(await step.scratch(), file), "w", 0o600);
  const transfer = {
    url: new URL(address),
    done: 0,
    total: undefined as number | undefined,
    validator: "",
    resumed: 0,
  };
  try {
    for (let failures = 0; ; failures++) {
      const before = transfer.done;
      try {
        const ended = await receive(step, transfer, target, guard, limits);
        if (ended === "page") return undefined;
        return { size: transfer.done, resumed: transfer.resumed };
      } catch (error) {
        step.signal.throwIfAborted();
        if (!(error instanceof Interrupted)) throw error;
        // Bytes that arrived count as progress: only tries in vain are limited tightly.
        if (transfer.done > before) failures = Math.min(failures, MAX_RESUMES);
        if (transfer.done === 0 || failures >= MAX_RESUMES) throw upstream(error.reason, error.cause);
        transfer.resumed += 1;
        step.log.warning(`Connection lost after ${formatMb(transfer.done)} MB - resuming there`, {
          reason: error.reason,
        });
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

async function receive(
  step: StepHandle,
  transfer: Transfer,
  target: FileHandle,
  guard: AddressGuard,
  limits: Pick<Limits, "sourceBytes" | "silenceMs">,
): Promise<"whole" | "page"> {
  const silence = new AbortController();
  const timer = setTimeout(() => silence.abort(), limits.silenceMs);
  const resuming = transfer.done > 0;
  try {
    const response = await guardedGet(transfer.url, {
      guard,
      signal: AbortSignal.any([step.signal, silence.signal]),
      headers: {
        accept: "video/*, audio/*;q=0.8, */*;q=0.5",
        "accept-encoding": "identity",
        "user-agent": "stillwake-clip",
        ...(resuming && { range: `bytes=${transfer.done}-` }),
        ...(resuming && transfer.validator && { "if-range": transfer.validator }),
      },
    });
    const { body } = response;
    try {
      if (!resuming && isPage(response)) return "page";
      beginPart(response, transfer, limits);
      for await (const chunk of body as AsyncIterable<Buffer>) {
        timer.refresh();
        if (transfer.done + chunk.length > limits.sourceBytes) throw tooLarge(limits.sourceBytes);
        await target.write(chunk, 0, chunk.length, transfer.done);
        transfer.done += chunk.length;
        report(step, transfer);
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
function beginPart(
  { status, headers }: GetResponse,
  transfer: Transfer,
  { sourceBytes }: Pick<Limits, "sourceBytes">,
): void {
  const range = /^bytes (\d+)-\d+\/(\d+)$/.exec(headers["content-range"] ?? "");
  if (status === 206 && Number(range?.[1]) === transfer.done) {
    transfer.total = Number(range?.[2]);
  } else if (status === 200) {
    // The server does not resume, or the file has changed: from the beginning.
    transfer.done = 0;
    transfer.total = headers["content-length"] === undefined ? undefined : Number(headers["content-length"]);
  } else if (status === 404 || status === 410) {
    throw clipError("SOURCE_NOT_FOUND");
  } else if (status === 401 || status === 403) {
    throw clipError("SOURCE_FORBIDDEN");
  } else {
    throw upstream(status === 429 ? "429, too many requests" : `status ${status}`, undefined);
  }
  transfer.validator = String(headers.etag?.startsWith("W/") ? "" : (headers.etag ?? headers["last-modified"] ?? ""));
  if ((transfer.total ?? 0) > sourceBytes) throw tooLarge(sourceBytes);
}

function isPage({ status, headers }: GetResponse): boolean {
  return status === 200 && /^(text\/html|application\/xhtml\+xml)\b/i.test(headers["content-type"] ?? "");
}

function report(step: StepHandle, { done, total }: Transfer): void {
  const of = total === undefined ? "" : ` of ${formatMb(total)}`;
  step.progress(total ? { done, total } : 0, `Downloading: ${formatMb(done)}${of} MB`);
}

function toDownloadError(error: unknown, resuming: boolean): unknown {
  const { code = "", errors } = error as { code?: string; errors?: unknown[] };
  if (error instanceof BlockedAddress || errors?.some((one) => one instanceof BlockedAddress)) {
    return clipError("SOURCE_BLOCKED", {}, error);
  }
  if (code === "INVALID_URL" || code === "HTTPS_ONLY") return clipError("SOURCE_BLOCKED", {}, error);
  if (/^(ECONNRESET|EPIPE|ERR_STREAM_PREMATURE_CLOSE|HPE_\w+)$/.test(code))
    return new Interrupted("connection lost", error);
  if (code === "DNS_FAILED") return upstream("its name was not found", error);
  if (code === "REDIRECT") return upstream("too many redirects", error);
  if (/^(E[A-Z]+|CERT_\w+|\w*(SSL|TLS|CERT)\w*)$/.test(code) && !/^(ENOSPC|EDQUOT|EIO|EFBIG)$/.test(code)) {
    return resuming ? new Interrupted("no connection", error) : upstream("no connection", error);
  }
  return error;
}

function upstream(reason: string, cause: unknown) {
  return clipError("UPSTREAM_FAILURE", { reason }, cause);
}

export function tooLarge(bytes: number) {
  return clipError("SOURCE_TOO_LARGE", { limit: `${formatMb(bytes)} MB` });
}

export function formatMb(bytes: number): string {
  return (bytes / 2 ** 20).toFixed(1);
}
