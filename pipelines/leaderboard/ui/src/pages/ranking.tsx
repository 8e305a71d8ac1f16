// Who has made how many of the commits. While contributors are looked up, those that nobody has looked up yet say so; two rows may become one.
import { Empty, Panel, Wrong } from "@stillwake/kit/ui/parts/panel.tsx";
import { count, inLine, percent, safeLink } from "@stillwake/kit/ui/parts/words.ts";
import { useEffect, useRef, useState } from "react";
import type { Board, Contributor } from "../nouns.ts";
import { Face } from "../parts/face.tsx";
import { useMore } from "./more.ts";

export function Ranking({ board }: { board: Board }) {
  const [wanted, setWanted] = useState(0);
  const more = useMore(board, wanted);
  const { total } = board.contributors;
  const rows = [...board.contributors.rows, ...more.rows];
  if (rows.length === 0) {
    return (
      <Panel title="Leaderboard">
        <Nobody board={board} />
      </Panel>
    );
  }
  return (
    <Panel title="Leaderboard">
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
          {rows
            .map((row, place) => ({ row, key: `${place}` }))
            .map(({ row, key }) => (
              <Row key={key} of={row} open={board.stage !== null} />
            ))}
        </tbody>
      </table>
      {more.error && <Wrong error={more.error} />}
      <Foot
        words={total > rows.length ? `${count(rows.length)} of ${count(total)}` : `${count(total)} in all`}
        busy={more.busy}
        onMore={more.cursor === null ? undefined : () => setWanted(more.pages + 1)}
      />
    </Panel>
  );
}

function Row({ of, open }: { of: Contributor; open: boolean }) {
  return (
    <tr>
      <td className="rank number">{of.rank}</td>
      <th scope="row">
        <span className="who">
          <Face of={of} />
          <span className="lines">
            <Names of={of} open={open} />
          </span>
        </span>
      </th>
      <td className="number" data-label={of.commits === 1 ? "commit" : "commits"}>
        {count(of.commits)}
      </td>
      <td>
        <span className="share">
          <span className="share-bar" aria-hidden="true">
            <span style={{ width: `${Math.min(1, Math.max(0, of.share)) * 100}%` }} />
          </span>
          <span className="number">{percent(of.share)}</span>
        </span>
      </td>
    </tr>
  );
}

/** The name with the login below it, or what there is of the two. */
function Names({ of: { login, name, url, known }, open }: { of: Contributor; open: boolean }) {
  const href = safeLink(url);
  const shown = login !== null && <span className="foreign clamp">{inLine(login)}</span>;
  return (
    <>
      {(name !== null || login === null) && <span className="foreign clamp">{inLine(name ?? "") || "No name"}</span>}
      {shown &&
        (href ? (
          <a href={href} rel="noopener noreferrer">
            {shown}
          </a>
        ) : (
          shown
        ))}
      {!known && <span className="tag">{open ? "not looked up yet" : "not looked up"}</span>}
      {known && login === null && <span className="soft">no account found</span>}
    </>
  );
}

/** When the last rows have come, the button goes, and the keyboard goes on here. */
function Foot({ words, busy, onMore }: { words: string; busy: boolean; onMore: (() => void) | undefined }) {
  const place = useRef<HTMLDivElement>(null);
  const pressed = useRef(false);
  const atEnd = onMore === undefined;
  useEffect(() => {
    if (atEnd && pressed.current) place.current?.focus({ preventScroll: true });
    if (atEnd) pressed.current = false;
  }, [atEnd]);
  return (
    <div className="foot" ref={place} tabIndex={-1}>
      <span className="soft small number" role="status">
        {words}
      </span>
      {onMore && (
        <span className="acts">
          <button
            type="button"
            className="button"
            aria-disabled={busy}
            onClick={() => {
              pressed.current = true;
              if (!busy) onMore();
            }}
          >
            Show more
          </button>
        </span>
      )}
    </div>
  );
}

function Nobody({ board }: { board: Board }) {
  if (board.stage !== null) {
    return (
      <Empty title="Nobody is ranked yet">
        <p>The leaderboard is here as soon as the commits are counted, and gets its names after that.</p>
      </Empty>
    );
  }
  return <Empty title={board.status === "failed" ? "Nobody was ranked" : "This repository has no commits"} />;
}
