// States of repositories and extractions, and severities, in a word and a shape.
import { type Look, Mark } from "@stillwake/kit/ui/parts/marks.tsx";
import type { OneVulnerability } from "../nouns.ts";

const looks: Record<string, Look> = {
  new: "waits",
  queued: "waits",
  extracting: "works",
  running: "works",
  ready: "good",
  completed: "good",
  failed: "bad",
  cancelled: "over",
};

export function StatusMark({ status, word = status }: { status: string; word?: string }) {
  return <Mark look={looks[status] ?? "waits"} word={word} />;
}

export function SeverityTag({ severity, number }: { severity: OneVulnerability["severity"]; number?: number }) {
  return (
    <span className="tag" data-severity={severity}>
      {number !== undefined && <b className="number">{number}</b>} {severity}
    </span>
  );
}
