// The states of repositories and extractions, and severities.
import { type State, StateBadge } from "@stillwake/ui/parts/state-badge.tsx";
import type { Project, Vulnerability } from "../types.ts";

const badgeStates: Record<string, State> = {
  new: "queued",
  queued: "queued",
  extracting: "running",
  running: "running",
  ready: "completed",
  completed: "completed",
  failed: "failed",
  cancelled: "cancelled",
};

export function ExtractionBadge({ status }: { status: string }) {
  return <StateBadge state={badgeStates[status] ?? "queued"}>{status}</StateBadge>;
}

export function ProjectBadge({ status }: Pick<Project, "status">) {
  return <StateBadge state={badgeStates[status]!}>{status === "new" ? "not extracted yet" : status}</StateBadge>;
}

export function SeverityTag({ severity, number }: { severity: Vulnerability["severity"]; number?: number }) {
  return (
    <span className="tag" data-severity={severity}>
      {number !== undefined && <b className="number">{number}</b>} {severity}
    </span>
  );
}
