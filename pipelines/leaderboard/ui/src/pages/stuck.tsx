// What wants attention: leaderboards that have been in work for more than an hour. Nothing where there is none.
import { useAct } from "@stillwake/kit/ui/ask.ts";
import { Wrong } from "@stillwake/kit/ui/parts/panel.tsx";
import { inLine } from "@stillwake/kit/ui/parts/words.ts";
import { Link } from "@stillwake/kit/ui/place.tsx";
import type { Summary } from "../nouns.ts";

export function Stuck({ rows, onChanged }: { rows: readonly Summary[]; onChanged: () => void }) {
  if (rows.length === 0) return null;
  return (
    <section className="callout" data-tone="amber" role="alert">
      {rows.map((board) => (
        <One key={board.id} board={board} onChanged={onChanged} />
      ))}
    </section>
  );
}

/** Contributors can be looked up again without reading the commits again. */
function One({ board, onChanged }: { board: Summary; onChanged: () => void }) {
  const { act, busy, wrong } = useAct();
  const name = inLine(board.repository);
  const lookUp = async () => {
    if (await act("POST", `leaderboard/${board.id}/users`)) onChanged();
  };
  return (
    <div className="stuck">
      <span>
        <Link to={`boards/${board.id}`} className="foreign">
          {name}
        </Link>{" "}
        has been in work for more than an hour.
      </span>
      {board.stage === "users" && (
        <button type="button" className="button" disabled={busy} onClick={() => void lookUp()}>
          Look up again
          <span className="hidden"> {name}</span>
        </button>
      )}
      {wrong && <Wrong error={wrong} />}
    </div>
  );
}
