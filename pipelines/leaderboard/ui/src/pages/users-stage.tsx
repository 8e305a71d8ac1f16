// The second stage: finds the GitHub accounts of the authors' e-mail addresses, within GitHub's rate limit.

import { formatCount, plural } from "@stillwake/ui/format.ts";
import { FactColumns } from "@stillwake/ui/parts/facts.tsx";
import { Panel } from "@stillwake/ui/parts/panel.tsx";
import { StateBadge } from "@stillwake/ui/parts/state-badge.tsx";
import { Duration } from "@stillwake/ui/parts/time.tsx";
import { Figure } from "../parts/figure.tsx";
import { QuotaNote } from "../parts/quota.tsx";
import type { Board, BoardState } from "../types.ts";

export function UsersStage({ board }: { board: Board }) {
  const { lookups, times, contributors, quota } = board;
  const { total, processed, failed } = lookups;
  const [state, label] = stageState(board);
  const isActive = board.stage === "users";
  const endedAt = isActive ? null : times.usersEndedAt;
  return (
    <Panel title="Contributors" actions={<StateBadge state={state}>{label}</StateBadge>}>
      <div className="stage">
        {total === 0 ? (
          <Figure text={state === "queued" ? "Starts when the commits are counted" : "Nothing to look up"} />
        ) : (
          <Figure value={formatCount(processed)} text={`of ${plural(total, "e-mail")} looked up`} />
        )}
        <progress className="meter" aria-label="E-mails looked up" max={Math.max(1, total)} value={processed} />
        {failed > 0 && <p className="bad small">{plural(failed, "e-mail")} could not be looked up.</p>}
        {isActive && <QuotaNote quota={quota} />}
        <FactColumns
          facts={[
            ["Contributors", contributors.total === 0 ? "–" : formatCount(contributors.total)],
            [
              isActive ? "Running for" : "Took",
              <Duration key="duration" from={endedAt || isActive ? times.commitsEndedAt : null} to={endedAt} />,
            ],
          ]}
        />
      </div>
    </Panel>
  );
}

function stageState(board: Board): BoardState {
  const { total, processed, failed } = board.lookups;
  const { stage } = board;
  if (stage === "commits") return ["queued", "after the commits"];
  if (stage === "users" && processed + failed >= total && failed > 0) return ["failed", "some failed"];
  if (stage === "users") return board.quota.waiting ? ["queued", "waits for GitHub"] : ["running", "looking up"];
  if (processed < total) return ["failed", "not all looked up"];
  return board.status === "completed" ? ["completed", "all looked up"] : ["cancelled", "not started"];
}
