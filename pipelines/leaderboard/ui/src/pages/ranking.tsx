// The contributors by their number of commits. Until an e-mail is looked up its row says so; two rows may become one.
import { escapeLine, formatCount, formatPercent, safeLink } from "@stillwake/ui/format.ts";
import { Button } from "@stillwake/ui/parts/button.tsx";
import { Empty, ErrorCallout, Panel } from "@stillwake/ui/parts/panel.tsx";
import { useEffect, useRef, useState } from "react";
import { Avatar } from "../parts/avatar.tsx";
import type { Board, Contributor } from "../types.ts";
import { useMoreRows } from "./use-more-rows.ts";

export function Ranking({ board }: { board: Board }) {
  const [pages, setPages] = useState(0);
  const more = useMoreRows(board, pages);
  const { total } = board.contributors;
  const rows = [...board.contributors.rows, ...more.rows];
  if (rows.length === 0) {
    return (
      <Panel title="Leaderboard" bare>
        <EmptyRanking board={board} />
      </Panel>
    );
  }
  return (
    <Panel title="Leaderboard" bare>
      <table className="ranking" aria-label="Contributors">
        <thead>
          <tr>
            <th scope="col">Rank</th>
            <th scope="col">Contributor</th>
            <th scope="col" className="number">
              Commits
            </th>
            <th scope="col">Share</th>
          </tr>
        </thead>
        <tbody>
          {rows.map((row, index) => (
            // The index, because contributors have no id and their names are not unique.
            <ContributorRow key={index} contributor={row} inProgress={board.stage !== null} />
          ))}
        </tbody>
      </table>
      {more.error && <ErrorCallout error={more.error} />}
      <Foot
        text={
          total > rows.length
            ? `${formatCount(rows.length)} of ${formatCount(total)}`
            : `${formatCount(total)} in total`
        }
        busy={more.busy}
        onMore={more.cursor === null ? undefined : () => setPages(more.pages + 1)}
      />
    </Panel>
  );
}

function ContributorRow({ contributor, inProgress }: { contributor: Contributor; inProgress: boolean }) {
  const { rank, commits, share } = contributor;
  return (
    <tr>
      <td className="rank number">{rank}</td>
      <th scope="row">
        <span className="contributor">
          <Avatar contributor={contributor} />
          <span className="lines">
            <Names contributor={contributor} inProgress={inProgress} />
          </span>
        </span>
      </th>
      <td className="number" data-label={commits === 1 ? "commit" : "commits"}>
        {formatCount(commits)}
      </td>
      <td>
        <span className="share">
          <span className="share-bar" aria-hidden="true">
            <span style={{ width: `${Math.min(1, Math.max(0, share)) * 100}%` }} />
          </span>
          <span className="number">{formatPercent(share)}</span>
        </span>
      </td>
    </tr>
  );
}

/** The name and the login below it, or one of them. */
function Names({
  contributor: { login, name, url, known },
  inProgress,
}: {
  contributor: Contributor;
  inProgress: boolean;
}) {
  const href = safeLink(url);
  const loginText = login !== null && <span className="untrusted clamp">{escapeLine(login)}</span>;
  return (
    <>
      {(name !== null || login === null) && (
        <span className="untrusted clamp">{escapeLine(name ?? "") || "No name"}</span>
      )}
      {loginText &&
        (href ? (
          <a href={href} rel="noopener noreferrer">
            {loginText}
          </a>
        ) : (
          loginText
        ))}
      {!known && <span className="tag">{inProgress ? "not looked up yet" : "not looked up"}</span>}
      {known && login === null && <span className="soft">no account found</span>}
    </>
  );
}

/** When the last rows have loaded the button disappears, and the focus moves to the foot. */
function Foot({ text, busy, onMore }: { text: string; busy: boolean; onMore: (() => void) | undefined }) {
  const foot = useRef<HTMLDivElement>(null);
  const wasPressed = useRef(false);
  const isEnd = onMore === undefined;
  useEffect(() => {
    if (isEnd && wasPressed.current) foot.current?.focus({ preventScroll: true });
    if (isEnd) wasPressed.current = false;
  }, [isEnd]);
  return (
    <div className="foot" ref={foot} tabIndex={-1}>
      <span className="soft small number" role="status">
        {text}
      </span>
      {onMore && (
        <span className="actions">
          <Button
            // Not `disabled`, which would drop the focus.
            aria-disabled={busy}
            onClick={() => {
              wasPressed.current = true;
              if (!busy) onMore();
            }}
          >
            Show more
          </Button>
        </span>
      )}
    </div>
  );
}

function EmptyRanking({ board }: { board: Board }) {
  if (board.stage !== null) {
    return (
      <Empty title="No ranking yet">
        <p>The ranking appears when the commits are counted. Names are added after that.</p>
      </Empty>
    );
  }
  return <Empty title={board.status === "failed" ? "No ranking" : "This repository has no commits"} />;
}
