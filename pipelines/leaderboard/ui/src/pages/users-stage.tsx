// The second stage: whose the e-mail addresses are. It lives on what GitHub allows, and says when it waits for more of it.
import { type Look, Mark } from "@stillwake/kit/ui/parts/marks.tsx";
import { useNow } from "@stillwake/kit/ui/parts/now.ts";
import { Panel } from "@stillwake/kit/ui/parts/panel.tsx";
import { count, several, took } from "@stillwake/kit/ui/parts/words.ts";
import type { Board } from "../nouns.ts";
import { BudgetNote } from "../parts/budget.tsx";
import { Figure, StageFacts } from "../parts/stage.tsx";

export function UsersStage({ board }: { board: Board }) {
  const now = useNow();
  const { lookups, times, contributors, budget } = board;
  const { total, processed, failed } = lookups;
  const [look, word] = stateOf(board);
  const open = board.stage === "users";
  const over = open ? null : times.usersEndedAt;
  return (
    <Panel title="Contributors" acts={<Mark look={look} word={word} />}>
      <div className="stage">
        {total === 0 ? (
          <Figure words={look === "waits" ? "Begins when the commits are counted" : "Nothing to look up"} />
        ) : (
          <Figure value={count(processed)} words={`of ${several(total, "e-mail")} looked up`} />
        )}
        <progress className="meter" aria-label="E-mails looked up" max={Math.max(1, total)} value={processed} />
        {failed > 0 && <p className="bad small">{several(failed, "e-mail")} could not be looked up.</p>}
        {open && <BudgetNote budget={budget} />}
        <StageFacts
          facts={[
            ["Contributors", contributors.total === 0 ? "–" : count(contributors.total)],
            [open ? "Runs for" : "Took", (over || open ? took(times.commitsEndedAt, over, now) : null) ?? "–"],
          ]}
        />
      </div>
    </Panel>
  );
}

function stateOf(board: Board): [Look, string] {
  const { total, processed, failed } = board.lookups;
  const { stage } = board;
  if (stage === "commits") return ["waits", "after the commits"];
  if (stage === "users" && processed + failed >= total && failed > 0) return ["bad", "some failed"];
  if (stage === "users") return board.budget.waiting ? ["waits", "waits for GitHub"] : ["works", "looking up"];
  if (processed < total) return ["bad", "not all looked up"];
  return board.status === "completed" ? ["good", "all looked up"] : ["over", "not begun"];
}
