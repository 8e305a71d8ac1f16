// Fetches the video of a page with yt-dlp. All its connections go through the guarded proxy, which also limits their bytes; it reads no
// configuration and writes into a directory of the scratch directory only. It gets no ffmpeg: it would start it without our lists of
// protocols and containers, on files that the page controls.
import fs from "node:fs/promises";
import path from "node:path";
import { startGuardedProxy } from "@stillwake/kit/http/guarded-proxy";
import { findTool } from "@stillwake/kit/tools";
import { type AddressGuard, ExecError, type StepHandle } from "stillwake/worker";
import { clipError, isDiskFull } from "../failures.ts";
import { formatMb } from "../media/progress.ts";
import { hasExtractorData } from "../model.ts";
import type { Settings } from "../settings.ts";

const FOLDER = "page";
/** Within FOLDER. A fixed name: neither the title of the page nor the type of the file is part of a path. */
const VIDEO = "video.media";
/** For pages and manifests, beyond the size of the video. */
const PAGE_BYTES = 32 * 2 ** 20;

/** The file is moved to `file` in the scratch directory. Returns its size. */
export async function fetchPage(
  step: StepHandle,
  address: string,
  file: string,
  guard: AddressGuard,
  { toolPath, ytDlpMinVersion, limits }: Pick<Settings, "toolPath" | "ytDlpMinVersion" | "limits">,
): Promise<number> {
  const program = await findTool("yt-dlp", toolPath);
  if (!program) throw clipError("YTDLP_MISSING");
  await checkVersion(step, program, ytDlpMinVersion);
  const page = new URL(address);
  page.hash = "";
  if (hasExtractorData(page.href)) throw clipError("SOURCE_BLOCKED");
  const folder = path.join(await step.scratch(), FOLDER);
  const noPrograms = path.join(folder, "none");
  await fs.mkdir(noPrograms, { recursive: true, mode: 0o700 });
  const tooLarge = (cause?: unknown) =>
    clipError("SOURCE_TOO_LARGE", { limit: `${formatMb(limits.sourceBytes)} MB` }, cause);
  const proxy = await startGuardedProxy(guard, { maxBytes: limits.sourceBytes + PAGE_BYTES });
  const args = [
    ...["--ignore-config", "--no-playlist", "--playlist-items", "1", "--no-cache-dir", "--no-mtime", "--no-warnings"],
    ...["--proxy", proxy.url, "--socket-timeout", "30", "--retries", "5", "--downloader", "native"],
    ...["--max-filesize", String(limits.sourceBytes), "--format", "b"],
    ...["--ffmpeg-location", noPrograms, "--fixup", "never", "--output", VIDEO, "--newline"],
    ...["--progress-template", "download:bytes %(progress.downloaded_bytes)s %(progress.total_bytes)s"],
  ];
  let output = "";
  try {
    const { stdout } = await step.exec(program, [...args, "--", page.href], {
      cwd: FOLDER,
      log: "stderr",
      timeout: `${limits.resolveMs}ms`,
      silence: `${limits.silenceMs}ms`,
      progress: readProgress,
    });
    output = stdout;
  } catch (error) {
    if (!(error instanceof ExecError)) throw error;
    throw proxy.exceeded ? tooLarge(error) : explain(error, proxy.blocked);
  } finally {
    await proxy.close();
  }
  const fetched = path.join(folder, VIDEO);
  const found = await fs.lstat(fetched).catch(() => undefined);
  // Over --max-filesize it exits with 0 and leaves no file.
  if (!found?.isFile()) {
    throw proxy.exceeded || /larger than max-filesize/.test(output) ? tooLarge() : clipError("YTDLP_FAILED");
  }
  const { size } = found;
  if (size > limits.sourceBytes) throw tooLarge();
  await fs.rename(fetched, path.join(await step.scratch(), file));
  await fs.rm(folder, { recursive: true, force: true });
  return size;
}

/** Versions are dates, so that they compare as texts. */
async function checkVersion(step: StepHandle, program: string, minimum: string): Promise<void> {
  const { stdout } = await step
    .exec(program, ["--ignore-config", "--version"], { log: "none", timeout: "60s" })
    .catch((error) => {
      throw error instanceof ExecError ? explain(error, false) : error;
    });
  const version = stdout.trim().slice(0, 40);
  if (!/^\d{4}\.\d\d\.\d\d/.test(version) || version < minimum) throw clipError("YTDLP_OLD", { version, minimum });
}

function readProgress(line: string) {
  const [, done = "", total = ""] = /^bytes (\d+) (\d+|NA)$/.exec(line.trim()) ?? [];
  if (done === "") return undefined;
  const sentence = `Downloading: ${formatMb(Number(done))} MB`;
  return total === "NA" ? { sentence } : { done: Number(done), total: Number(total), sentence };
}

/** yt-dlp exits with 1 for every failure; its text tells them apart. */
function explain(error: ExecError, blocked: boolean) {
  if (error.kind === "missing") return clipError("YTDLP_MISSING", {}, error);
  if (error.kind === "timeout" || error.kind === "silence") return clipError("YTDLP_TIMEOUT", {}, error);
  if (error.kind === "oom") return clipError("INTERNAL_TRANSIENT", { reason: "its memory ran out" }, error);
  if (error.kind === "signal") return clipError("INTERNAL_TRANSIENT", { reason: "a program was stopped" }, error);
  if (blocked) return clipError("SOURCE_BLOCKED", {}, error);
  const text = error.stderr.slice(-20_000);
  const status = /HTTP Error (\d{3})/.exec(text)?.[1] ?? "";
  if (isDiskFull(text)) return clipError("INTERNAL_TRANSIENT", { reason: "its disk is full" }, error);
  if (/Unsupported URL|no video formats|No video could be found|Requested format is not available/i.test(text))
    return clipError("PAGE_UNSUPPORTED", {}, error);
  if (status === "404" || status === "410") return clipError("SOURCE_NOT_FOUND", {}, error);
  if (status === "401" || status === "403" || /Private video|Sign in|login required/i.test(text)) {
    return clipError("SOURCE_FORBIDDEN", {}, error);
  }
  if (
    status !== "" ||
    /Connection (refused|reset|aborted)|timed out|Temporary failure|IncompleteRead|502 Bad/i.test(text)
  ) {
    return clipError("UPSTREAM_FAILURE", { reason: status === "" ? "no connection" : `status ${status}` }, error);
  }
  return clipError("YTDLP_FAILED", {}, error);
}
