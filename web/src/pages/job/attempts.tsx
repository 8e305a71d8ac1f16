// Every try at the job: who did it, how long, how it ended, and what killed it.
import type { nouns } from "../../api/nouns.ts";
import { Moment, Span } from "../../parts/moment.tsx";
import { Panel } from "../../parts/panel.tsx";
import { type Column, Table } from "../../parts/table.tsx";
import { outcomeWords } from "../../parts/timeline/timeline.tsx";
import { lostRunner } from "../../parts/timeline/timeline-model.ts";
import { count, inert, several } from "../../parts/words.ts";
import { FailureWords } from "./failure.tsx";

const tones: Record<string, "good" | "bad" | "amber" | "teal"> = {
  completed: "good",
  failed: "bad",
  lost: "bad",
  slept: "amber",
  paused: "amber",
  released: "amber",
};

/** Its place among all of them: the server's own count begins anew when a job is retried by hand. */
type Numbered = nouns.Attempt & { no: number };

const columns: Column<Numbered>[] = [
  {
    head: "Attempt",
    width: "76px",
    cell: ({ no }) => (
      <>
        <span className="job-attempt-word">Attempt </span>
        {count(no)}
      </>
    ),
  },
  {
    head: "Outcome",
    width: "124px",
    cell: ({ outcome, failure }) => (
      <span className="tag" data-tone={outcome === null ? "teal" : tones[outcome]}>
        {outcomeWords(outcome, lostRunner({ outcome, failure }))}
      </span>
    ),
  },
  { head: "Worker", cell: ({ worker }) => <span className="foreign">{worker === null ? "–" : inert(worker)}</span> },
  { head: "Began", width: "116px", number: true, cell: ({ claimedAt }) => <Moment at={claimedAt} /> },
  {
    head: "Took",
    width: "112px",
    number: true,
    cell: ({ claimedAt, endedAt, outcome, failure }) =>
      outcome === "lost" && !lostRunner({ outcome, failure }) ? (
        <span title="Until it was noticed that its worker was lost. When it stopped working, nobody knows.">
          ≤ <Span from={claimedAt} to={endedAt} />
        </span>
      ) : (
        <Span from={claimedAt} to={endedAt} />
      ),
  },
];

export function Attempts({ attempts }: { attempts: readonly nouns.Attempt[] }) {
  if (attempts.length === 0) return null;
  return (
    <Panel title="Attempts" acts={<span className="soft small">{several(attempts.length, "attempt")}</span>} bare>
      <Table
        label="Attempts at this job"
        columns={columns}
        rows={attempts.map((attempt, at) => ({ ...attempt, no: at + 1 }))}
        keyOf={({ epoch }) => epoch}
        below={({ failure }) => failure && <FailureWords failure={failure} />}
      />
    </Panel>
  );
}
