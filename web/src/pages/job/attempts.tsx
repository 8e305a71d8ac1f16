// The attempts of a job: worker, duration, outcome and failure.

import { escapeText, formatCount, plural } from "@stillwake/ui/format.ts";
import { Panel } from "@stillwake/ui/parts/panel.tsx";
import { type Column, Table } from "@stillwake/ui/parts/table.tsx";
import { Duration, RelativeTime } from "@stillwake/ui/parts/time.tsx";
import type { api } from "../../api/resources.ts";
import { outcomeText } from "../../parts/timeline/timeline.tsx";
import { isRunnerLost } from "../../parts/timeline/timeline-model.ts";
import { FailureSummary } from "./failure.tsx";

const tones: Record<string, "good" | "bad" | "amber" | "teal"> = {
  completed: "good",
  failed: "bad",
  lost: "bad",
  slept: "amber",
  paused: "amber",
  released: "amber",
};

/** `index` counts all attempts from 0: the server's count restarts when an ended job is retried by hand. */
type IndexedAttempt = api.Attempt & { index: number };

const columns: Column<IndexedAttempt>[] = [
  {
    head: "Attempt",
    width: "76px",
    cell: ({ index }) => (
      <>
        <span className="job-attempt-word">Attempt </span>
        {formatCount(index + 1)}
      </>
    ),
  },
  {
    head: "Outcome",
    width: "124px",
    cell: ({ outcome, failure }) => (
      <span className="tag" data-tone={outcome === null ? "teal" : tones[outcome]}>
        {outcomeText(outcome, isRunnerLost({ outcome, failure }))}
      </span>
    ),
  },
  {
    head: "Worker",
    cell: ({ worker }) => <span className="untrusted">{worker === null ? "–" : escapeText(worker)}</span>,
  },
  { head: "Started", width: "116px", number: true, cell: ({ claimedAt }) => <RelativeTime at={claimedAt} /> },
  {
    head: "Took",
    width: "112px",
    number: true,
    cell: ({ claimedAt, endedAt, outcome, failure }) =>
      outcome === "lost" && !isRunnerLost({ outcome, failure }) ? (
        <span title="Until the loss of its worker was detected. It may have stopped earlier.">
          ≤ <Duration from={claimedAt} to={endedAt} />
        </span>
      ) : (
        <Duration from={claimedAt} to={endedAt} />
      ),
  },
];

export function Attempts({ attempts }: { attempts: readonly api.Attempt[] }) {
  if (attempts.length === 0) return null;
  return (
    <Panel title="Attempts" actions={<span className="soft small">{plural(attempts.length, "attempt")}</span>} bare>
      <Table
        label="Attempts of this job"
        columns={columns}
        rows={attempts.map((attempt, index) => ({ ...attempt, index }))}
        keyOf={({ epoch }) => epoch}
        details={({ failure }) => failure && <FailureSummary failure={failure} />}
      />
    </Panel>
  );
}
