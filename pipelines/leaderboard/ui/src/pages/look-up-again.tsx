// The button that looks up contributors again without counting the commits again.
import { useSubmit } from "@stillwake/ui/api/query.ts";
import { Button } from "@stillwake/ui/parts/button.tsx";
import { ErrorCallout } from "@stillwake/ui/parts/panel.tsx";
import { useState } from "react";
import type { Summary } from "../types.ts";

/** `repository`: its name for screen readers, if there are several buttons on the page. */
export function LookUpAgain({ board, repository }: { board: Summary; repository?: string }) {
  const { submit, busy, error } = useSubmit();
  const [isUnderway, setUnderway] = useState(false);
  const lookUp = async () => {
    setUnderway(false);
    const result = await submit<{ lookups: number }>({ path: `api/leaderboard/${board.id}/users` });
    setUnderway(result?.lookups === 0);
  };
  return (
    <>
      <Button disabled={busy} onClick={() => void lookUp()}>
        Look up again
        {repository !== undefined && <span className="hidden"> {repository}</span>}
      </Button>
      {isUnderway && (
        <span className="soft small" role="status">
          The remaining e-mails are already being looked up, or wait for the rate limit.
        </span>
      )}
      {error && <ErrorCallout error={error} />}
    </>
  );
}
