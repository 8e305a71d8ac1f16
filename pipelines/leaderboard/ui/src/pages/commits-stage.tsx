// The first stage: counts all commits. It needs no calls to GitHub.

import { formatCount, formatDayTime } from "@stillwake/ui/format.ts";
import { FactColumns } from "@stillwake/ui/parts/facts.tsx";
import { Panel } from "@stillwake/ui/parts/panel.tsx";
import { StateBadge } from "@stillwake/ui/parts/state-badge.tsx";
import { Duration } from "@stillwake/ui/parts/time.tsx";
import { Figure } from "../parts/figure.tsx";
import type { Board, BoardState } from "../types.ts";

export function CommitsStage({ board }: { board: Board }) {
  const { commits, authors, progress, times } = board;
  const { commitsStartedAt: startedAt, commitsEndedAt: endedAt } = times;
  const [state, label] = stageState(board);
  const isCounting = state === "running";
  return (
    <Panel title="Commits" actions={<StateBadge state={state}>{label}</StateBadge>}>
      <div className="stage">
        {isCounting ? (
          <Figure value={formatCount(progress?.done ?? 0)} text="commits counted so far" />
        ) : commits !== null ? (
          <Figure value={formatCount(commits)} text={commits === 1 ? "commit" : "commits"} />
        ) : (
          <Figure text={state === "queued" ? "Starts when a worker is available" : "Not counted"} />
        )}
        <FactColumns
          facts={[
            ["Authors", authors === null ? "–" : formatCount(authors)],
            ["Started", startedAt === null ? "–" : formatDayTime(startedAt)],
            [
              isCounting ? "Running for" : "Took",
              <Duration key="duration" from={startedAt} to={isCounting ? null : (endedAt ?? times.updatedAt)} />,
            ],
          ]}
        />
      </div>
    </Panel>
  );
}

function stageState(board: Board): BoardState {
  if (board.status === "pending") return ["queued", "waits for a worker"];
  if (board.stage === "commits") return ["running", "counting"];
  if (board.times.commitsEndedAt !== null) return ["completed", "counted"];
  return ["failed", "failed"];
}
