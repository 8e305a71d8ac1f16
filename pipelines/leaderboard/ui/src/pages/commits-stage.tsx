// The first stage: every commit is read and counted, which needs no call to anybody.
import { type Look, Mark } from "@stillwake/kit/ui/parts/marks.tsx";
import { useNow } from "@stillwake/kit/ui/parts/now.ts";
import { Panel } from "@stillwake/kit/ui/parts/panel.tsx";
import { count, dayTime, took } from "@stillwake/kit/ui/parts/words.ts";
import type { Board } from "../nouns.ts";
import { Figure, StageFacts } from "../parts/stage.tsx";

export function CommitsStage({ board }: { board: Board }) {
  const now = useNow();
  const { commits, authors, progress, times } = board;
  const { commitsStartedAt: started, commitsEndedAt: ended } = times;
  const [look, word] = stateOf(board);
  const counting = look === "works";
  return (
    <Panel title="Commits" acts={<Mark look={look} word={word} />}>
      <div className="stage">
        {counting ? (
          <Figure value={count(progress?.done ?? 0)} words="commits counted so far" />
        ) : (
          <Total commits={commits} waits={look === "waits"} />
        )}
        <StageFacts
          facts={[
            ["Authors", authors === null ? "–" : count(authors)],
            ["Started", started === null ? "–" : dayTime(started)],
            [counting ? "Runs for" : "Took", took(started, counting ? null : (ended ?? times.updatedAt), now) ?? "–"],
          ]}
        />
      </div>
    </Panel>
  );
}

function Total({ commits, waits }: { commits: number | null; waits: boolean }) {
  if (commits === null) return <Figure words={waits ? "Begins as soon as a worker is there" : "Not counted"} />;
  return <Figure value={count(commits)} words={commits === 1 ? "commit" : "commits"} />;
}

function stateOf(board: Board): [Look, string] {
  if (board.status === "pending") return ["waits", "waits for a worker"];
  if (board.stage === "commits") return ["works", "counting"];
  if (board.times.commitsEndedAt !== null) return ["good", "counted"];
  return ["bad", "failed"];
}
