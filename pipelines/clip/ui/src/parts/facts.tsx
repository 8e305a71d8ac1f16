// The figures of a clip: what was asked for, and what the file has.
import { formatBytes, formatDayTime } from "@stillwake/ui/format.ts";
import { FactColumns } from "@stillwake/ui/parts/facts.tsx";
import { Duration } from "@stillwake/ui/parts/time.tsx";
import type { ReactNode } from "react";
import type { Clip } from "../../../src/model.ts";
import { CAPTIONS, FORMATS } from "../labels.ts";
import { formatLength } from "../timecode.ts";

export function Facts({ clip }: { clip: Clip }) {
  const { format, captions, result, attempts, createdAt, startedAt, endedAt, start, end } = clip;
  const facts: [string, ReactNode][] = [
    ["Format", FORMATS[format]],
    ["Length", formatLength(result?.duration ?? end - start)],
    ["Captions", CAPTIONS[result?.captions ?? captions]],
  ];
  if (result) {
    facts.push(
      ["Size", formatBytes(result.size)],
      ["Picture", `${result.width} × ${result.height}`],
      ["Sound", result.hasAudio ? "yes" : "no"],
      ["Made by", result.encoded ? "encoding" : "copying, without encoding"],
    );
  }
  facts.push(
    ["Requested", formatDayTime(createdAt)],
    [endedAt ? "Took" : "Running for", <Duration key="duration" from={startedAt} to={endedAt} />],
    ["Attempts", attempts === 0 ? "–" : String(attempts)],
  );
  return <FactColumns facts={facts} />;
}
