// Fetches the video of a page with yt-dlp. All its connections go through the guarded proxy; it reads no configuration and writes
// into a directory of the scratch directory only.
import fs from "node:fs/promises";
import path from "node:path";
import { startGuardedProxy } from "@stillwake/kit/http/guarded-proxy";
import { findTool } from "@stillwake/kit/tools";
import { type AddressGuard, ExecError, type StepHandle } from "stillwake/worker";
import { clipError, isDiskFull } from "../failures.ts";
import type { Programs } from "../media/programs.ts";
import { formatMb } from "../media/progress.ts";
import type { Settings } from "../settings.ts";

const FOLDER = "page";

/** The file is moved to `file` in the scratch directory. Returns its size. */
export async function fetchPage(
  step: StepHandle,
  address: string,
  file: string,
  guard: AddressGuard,
  { toolPath, limits }: Pick<Settings, "toolPath" | "limits">,
  { ffmpeg }: Programs,
): Promise<number> {
  const program = await findTool("yt-dlp", toolPath);
  if (!program) throw clipError("YTDLP_MISSING");
  const folder = path.join(await step.scratch(), FOLDER);
  await fs.mkdir(folder, { mode: 0o700 });
  const proxy = await startGuardedProxy(guard);
  const args = [
    ...["--ignore-config", "--no-playlist", "--playlist-items", "1", "--no-cache-dir", "--no-mtime", "--no-warnings"],
    ...["--proxy", proxy.url, "--socket-timeout", "30", "--retries", "5", "--downloader", "native"],
    ...["--max-filesize", String(limits.sourceBytes), "--format", "b/bv*+ba", "--ffmpeg-location", ffmpeg],
    // A fixed name: the title of the page is never part of a path.
    ...["--output", "source.%(ext)s", "--newline"],
    ...["--progress-template", "download:bytes %(progress.downloaded_bytes)s %(progress.total_bytes)s"],
  ];
  try {
    await step.exec(program, [...args, "--", address], {
      cwd: FOLDER,
      log: "stderr",
      timeout: `${limits.resolveMs}ms`,
      silence: `${limits.silenceMs}ms`,
      progress: readProgress,
    });
  } catch (error) {
    throw error instanceof ExecError ? explain(error, proxy.blocked) : error;
  } finally {
    await proxy.close();
  }
  const names = await fs.readdir(folder);
  const name = names.find((one) => /^source\.\w{1,10}$/.test(one));
  // Over --max-filesize it exits with 0 and leaves no file.
  if (name === undefined) throw clipError("SOURCE_TOO_LARGE", { limit: `${formatMb(limits.sourceBytes)} MB` });
  const fetched = path.join(folder, name);
  const { size } = await fs.lstat(fetched);
  if (size > limits.sourceBytes) throw clipError("SOURCE_TOO_LARGE", { limit: `${formatMb(limits.sourceBytes)} MB` });
  await fs.rename(fetched, path.join(await step.scratch(), file));
  await fs.rm(folder, { recursive: true, force: true });
  return size;
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
  if (blocked) return clipError("SOURCE_BLOCKED", {}, error);
  const text = error.stderr.slice(-20_000);
  const status = /HTTP Error (\d{3})/.exec(text)?.[1] ?? "";
  if (isDiskFull(text)) return clipError("INTERNAL_TRANSIENT", { reason: "its disk is full" }, error);
  if (/Unsupported URL|no video formats|No video could be found/i.test(text))
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
