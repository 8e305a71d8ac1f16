// Sends a file to the server and reports how much of it was sent, which fetch() cannot.
import { RequestError, resolveUrl } from "@stillwake/ui/api/request.ts";
import { formatBytes } from "@stillwake/ui/format.ts";
import { useEffect, useState } from "react";
import type { Upload } from "../../src/model.ts";

const ACCEPTED = /^(video\/.+|audio\/.+|image\/gif)$/;

export interface UploadState {
  /** From 0 to 1. */
  fraction: number;
  upload?: Upload;
  error?: RequestError;
}

/** Uploads the file as soon as there is one. Another file, or null, stops the upload. */
export function useUpload(file: File | null, maxBytes: number): UploadState & { retry: () => void } {
  const [state, setState] = useState<UploadState>({ fraction: 0 });
  const [tries, setTries] = useState(0);
  useEffect(() => {
    setState({ fraction: 0 });
    if (!file) return;
    const controller = new AbortController();
    send(file, maxBytes, controller.signal, (fraction) => setState({ fraction })).then(
      (upload) => setState({ fraction: 1, upload }),
      (error) => {
        if (!controller.signal.aborted && error instanceof RequestError) setState({ fraction: 0, error });
      },
    );
    return () => controller.abort();
  }, [file, maxBytes, tries]);
  return { ...state, retry: () => setTries((number) => number + 1) };
}

async function send(
  file: File,
  maxBytes: number,
  signal: AbortSignal,
  onFraction: (fraction: number) => void,
): Promise<Upload> {
  if (file.size === 0) {
    throw new RequestError({ status: 400, detail: "The file is empty", remedy: "Choose another file." });
  }
  if (file.size > maxBytes) {
    throw new RequestError({
      status: 413,
      code: "TOO_LARGE",
      detail: `The file has ${formatBytes(file.size)}, and the server accepts ${formatBytes(maxBytes)}`,
      remedy: "Cut it into smaller files, or use the URL of the video.",
    });
  }
  const request = new XMLHttpRequest();
  request.responseType = "json";
  request.open("POST", resolveUrl("api/uploads", { name: file.name }));
  request.setRequestHeader("content-type", ACCEPTED.test(file.type) ? file.type : "application/octet-stream");
  request.upload.onprogress = ({ loaded }) => onFraction(Math.min(1, loaded / file.size));
  const ended = new Promise<void>((resolve) => {
    request.onloadend = () => resolve();
  });
  signal.addEventListener("abort", () => request.abort());
  request.send(file);
  await ended;
  const { status, response } = request;
  if (status === 201 && response) return response as Upload;
  if (status === 0) {
    const remedy = "Check the connection and upload the file again.";
    throw new RequestError({ status, code: "UNREACHABLE", detail: "The upload was interrupted", remedy });
  }
  throw new RequestError({ ...(response as object), status });
}
