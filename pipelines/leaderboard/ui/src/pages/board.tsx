// One leaderboard: its two stages, the log of the commit count, and the ranking.
import { useApiQuery, useSubmit } from "@stillwake/ui/api/query.ts";
import { escapeLine, safeLink, shortCommit } from "@stillwake/ui/format.ts";
import { usePageTitle } from "@stillwake/ui/page.ts";
import { Button } from "@stillwake/ui/parts/button.tsx";
import { ErrorCallout, PageHead } from "@stillwake/ui/parts/panel.tsx";
import { StateBadge } from "@stillwake/ui/parts/state-badge.tsx";
import { Link } from "wouter";
import { type Board, boardState, canLookUp, isInProgress } from "../types.ts";
import { CommitLog } from "./commit-log.tsx";
import { CommitsStage } from "./commits-stage.tsx";
import { LookUpAgain } from "./look-up-again.tsx";
import { Ranking } from "./ranking.tsx";
import { UsersStage } from "./users-stage.tsx";

export function BoardPage({ id }: { id: string }) {
  const board = useApiQuery<Board>(`api/leaderboard/${encodeURIComponent(id)}`, {
    query: { limit: 100 },
    once: ({ stage }) => stage === null,
    changing: isInProgress,
    urgent: isInProgress,
    // The tab's title shows the state.
    hiddenMs: 15_000,
  });
  if (board.data) {
    return (
      <>
        {board.error && <ErrorCallout error={board.error} />}
        <BoardView board={board.data} />
      </>
    );
  }
  if (board.error?.status === 404 || board.error?.status === 400) {
    return (
      <>
        <PageHead title="Leaderboard not found" />
        <p>
          The URL is wrong, or it was deleted. <Link href="/">See all leaderboards</Link>
        </p>
      </>
    );
  }
  return board.error ? <ErrorCallout error={board.error} /> : <p className="soft">Loading…</p>;
}

function BoardView({ board }: { board: Board }) {
  const { submit, busy, error } = useSubmit();
  const [state, label] = boardState(board);
  usePageTitle(`${escapeLine(board.repository)} ${label}`);
  const { stage, url } = board;
  const href = safeLink(url);
  const name = escapeLine(board.repository);
  return (
    <>
      <PageHead
        title={
          <span className="untrusted">
            {href ? (
              <a href={href} rel="noopener noreferrer">
                {name}
              </a>
            ) : (
              name
            )}
          </span>
        }
        note={<StateBadge state={state}>{label}</StateBadge>}
      >
        {canLookUp(board) && <LookUpAgain board={board} />}
        {stage !== "commits" && (
          <Button
            disabled={busy}
            onClick={() => void submit({ path: "api/leaderboard", body: { url, refresh: true } })}
          >
            Read again
          </Button>
        )}
      </PageHead>
      {board.head !== null && (
        <p className="soft small">
          Read up to commit <code>{shortCommit(board.head)}</code>
        </p>
      )}
      {error && <ErrorCallout error={error} />}
      {board.error && (
        <div className="callout" data-tone="bad" role="alert">
          <strong>This repository could not be ranked</strong>
          <span className="untrusted">{escapeLine(board.error)}</span>
        </div>
      )}
      {board.stuck && (
        <div className="callout" data-tone="amber" role="alert">
          <strong>In progress for more than an hour</strong>
          <span>{stuckReason(board)}</span>
        </div>
      )}
      <div className="stages">
        <CommitsStage board={board} />
        <UsersStage board={board} />
      </div>
      {board.jobs.commits !== null && (
        <CommitLog key={board.jobs.commits} board={board.id} job={board.jobs.commits} live={stage === "commits"} />
      )}
      <Ranking board={board} />
    </>
  );
}

function stuckReason(board: Board): string {
  if (board.lookups.failed > 0) return "Some e-mails could not be looked up. Look them up again.";
  return board.stage === "users"
    ? "GitHub's rate limit is low for this number of contributors, or no worker serves the pool users."
    : "The repository is very large, or no worker serves the pool commits.";
}
