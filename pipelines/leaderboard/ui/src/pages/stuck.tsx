// What wants attention: leaderboards that have been in work for more than an hour. Nothing where there is none.
import { inLine } from "@stillwake/kit/ui/parts/words.ts";
import { Link } from "@stillwake/kit/ui/place.tsx";
import type { Summary } from "../nouns.ts";
import { LookUpAgain } from "./look-up-again.tsx";

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

function One({ board, onChanged }: { board: Summary; onChanged: () => void }) {
  const name = inLine(board.repository);
  return (
    <div className="stuck">
      <span>
        <Link to={`boards/${board.id}`} className="foreign">
          {name}
        </Link>{" "}
        has been in work for more than an hour.
      </span>
      {board.stage === "users" && <LookUpAgain board={board} of={name} onChanged={onChanged} />}
    </div>
  );
}
