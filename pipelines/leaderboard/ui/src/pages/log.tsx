// The lines of the counting as they are written. Folded they are not asked for.
import { call } from "@stillwake/kit/ui/ask.ts";
import { Empty } from "@stillwake/kit/ui/parts/panel.tsx";
import { addressOf } from "@stillwake/kit/ui/place.tsx";
import { useEffect, useMemo, useRef, useState } from "react";
import { JobLog, JobProgress, useJob } from "stillwake/react";

/** `live`: the job is in work, and somebody who comes wants to see it. */
export function Log({ board, job, live, onEnd }: { board: string; job: string; live: boolean; onEnd: () => void }) {
  const [open, setOpen] = useState(live);
  return (
    <details className="panel fold" open={open} onToggle={(event) => setOpen(event.currentTarget.open)}>
      <summary>Log of the commits</summary>
      {open && <Lines board={board} job={job} onEnd={onEnd} />}
    </details>
  );
}

function Lines({ board, job, onEnd }: { board: string; job: string; onEnd: () => void }) {
  const [forgotten, setForgotten] = useState(false);
  const token = useMemo(
    () => async () => {
      const given = await call<{ token: string | null }>("GET", `leaderboard/${board}/token`);
      if (given.token !== null) return given.token;
      setForgotten(true);
      // Whoever follows the job asks for nothing then.
      throw new Error("There is no such job any more");
    },
    [board],
  );
  if (!forgotten) return <Followed job={job} token={token} onEnd={onEnd} />;
  return (
    <Empty title="Its lines are no longer kept">
      <p>What it came to is on this page.</p>
    </Empty>
  );
}

function Followed({ job: id, token, onEnd }: { job: string; token: () => Promise<string>; onEnd: () => void }) {
  const { store, job } = useJob(id, token, { server: addressOf("stillwake") });
  // The stream knows first that something has happened.
  const state = job?.state;
  const before = useRef(state);
  useEffect(() => {
    if (before.current !== undefined && before.current !== state) onEnd();
    before.current = state;
  }, [state, onEnd]);
  return (
    <div className="watched">
      <JobProgress store={store} className="progress" />
      <JobLog store={store} className="log" />
    </div>
  );
}
