// One leaderboard: its two stages side by side, the lines of the counting, and who has made how many commits. Asked for again while something is in work.
import { useAct, useAnswer } from "@stillwake/kit/ui/ask.ts";
import { Wrong } from "@stillwake/kit/ui/parts/panel.tsx";
import { inLine, safeLink, shortCommit } from "@stillwake/kit/ui/parts/words.ts";
import { Link } from "@stillwake/kit/ui/place.tsx";
import { useEffect } from "react";
import { type Board, canLookUp, pace } from "../nouns.ts";
import { StateMark, stateWord } from "../parts/marks.tsx";
import { CommitsStage } from "./commits-stage.tsx";
import { Log } from "./log.tsx";
import { LookUpAgain } from "./look-up-again.tsx";
import { Ranking } from "./ranking.tsx";
import { UsersStage } from "./users-stage.tsx";

export function BoardPage({ id }: { id: string }) {
  const board = useAnswer<Board>(`leaderboard/${id}?limit=100`, { every: pace, unseen: 15_000 });
  if (board.data) {
    return (
      <>
        {board.error && <Wrong error={board.error} />}
        <Known board={board.data} onChanged={board.reload} />
      </>
    );
  }
  if (board.error?.status === 404) {
    return (
      <>
        <h1>There is no such leaderboard</h1>
        <p>
          The address is wrong, or it was deleted. <Link to="">See all leaderboards</Link>
        </p>
      </>
    );
  }
  return board.error ? <Wrong error={board.error} /> : <h1 className="soft">One moment…</h1>;
}

function Known({ board, onChanged }: { board: Board; onChanged: () => void }) {
  const { act, busy, wrong } = useAct();
  const word = stateWord(board);
  useEffect(() => {
    document.title = `${inLine(board.repository)} ${word}`;
  }, [board.repository, word]);
  const readAgain = async () => {
    if (await act("POST", "leaderboard", { url: board.url, refresh: true })) onChanged();
  };
  const { stage } = board;
  return (
    <>
      <div className="page-head">
        <div className="lines">
          <h1 className="foreign">
            <Outside url={board.url}>{inLine(board.repository)}</Outside>
          </h1>
          {board.head !== null && (
            <p className="soft small">
              Read up to <code>{shortCommit(board.head)}</code>
            </p>
          )}
        </div>
        <StateMark board={board} />
        <div className="acts">
          {canLookUp(board) && <LookUpAgain board={board} onChanged={onChanged} />}
          {stage !== "commits" && (
            <button type="button" className="button" disabled={busy} onClick={() => void readAgain()}>
              Read again
            </button>
          )}
        </div>
      </div>
      {wrong && <Wrong error={wrong} />}
      {board.error && (
        <div className="callout" data-tone="bad" role="alert">
          <strong>This repository could not be ranked</strong>
          <span className="foreign">{inLine(board.error)}</span>
        </div>
      )}
      {board.stuck && (
        <div className="callout" data-tone="amber" role="alert">
          <strong>In work for more than an hour</strong>
          <span>{stuckWords(board)}</span>
        </div>
      )}
      <div className="stages">
        <CommitsStage board={board} />
        <UsersStage board={board} />
      </div>
      {board.jobs.commits !== null && (
        <Log
          key={board.jobs.commits}
          board={board.id}
          job={board.jobs.commits}
          live={stage === "commits"}
          onEnd={onChanged}
        />
      )}
      <Ranking board={board} />
    </>
  );
}

function stuckWords(board: Board): string {
  if (board.lookups.failed > 0) return "Some e-mails could not be looked up. Look them up again.";
  return board.stage === "users"
    ? "GitHub allows few calls for so many contributors, or nobody is at it: see whether a worker of the pool users is there."
    : "The repository is very large, or nobody is at it: see whether a worker of the pool commits is there.";
}

/** A link to another site, if it is an address that may be followed. */
function Outside({ url, children }: { url: string; children: string }) {
  const href = safeLink(url);
  if (!href) return children;
  return (
    <a href={href} rel="noopener noreferrer">
      {children}
    </a>
  );
}
