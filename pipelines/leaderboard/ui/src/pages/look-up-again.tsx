// The button that has contributors looked up again without reading the commits again. What is being looked up already is left to who is at it, and that is said.
import { useAct } from "@stillwake/kit/ui/ask.ts";
import { Wrong } from "@stillwake/kit/ui/parts/panel.tsx";
import { useState } from "react";
import type { Summary } from "../nouns.ts";

/** `of`: the repository, for whoever cannot see what the button is beside. */
export function LookUpAgain({ board, of, onChanged }: { board: Summary; of?: string; onChanged: () => void }) {
  const { act, busy, wrong } = useAct();
  const [underway, setUnderway] = useState(false);
  const lookUp = async () => {
    setUnderway(false);
    const dealt = await act<{ lookups: number }>("POST", `leaderboard/${board.id}/users`);
    setUnderway(dealt?.lookups === 0);
    if (dealt) onChanged();
  };
  return (
    <>
      <button type="button" className="button" disabled={busy} onClick={() => void lookUp()}>
        Look up again
        {of !== undefined && <span className="hidden"> {of}</span>}
      </button>
      {underway && (
        <span className="soft small" role="status">
          Whoever is left is being looked up already, or waits for the budget.
        </span>
      )}
      {wrong && <Wrong error={wrong} />}
    </>
  );
}
