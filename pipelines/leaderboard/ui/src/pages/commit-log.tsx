// The live log of the commit count. It is not followed while it is collapsed.
import { useRefreshOnChange } from "@stillwake/ui/api/query.ts";
import { request, resolveUrl } from "@stillwake/ui/api/request.ts";
import { Empty } from "@stillwake/ui/parts/panel.tsx";
import { useMemo, useState } from "react";
import { JobLog, JobProgress, useJob } from "stillwake/react";

/** `live`: the job is running, so the log is open. */
export function CommitLog({ board, job, live }: { board: string; job: string; live: boolean }) {
  const [open, setOpen] = useState(live);
  return (
    <details className="panel collapsible" open={open} onToggle={(event) => setOpen(event.currentTarget.open)}>
      <summary>Commit log</summary>
      {open && <Log board={board} job={job} />}
    </details>
  );
}

function Log({ board, job }: { board: string; job: string }) {
  const [isPruned, setPruned] = useState(false);
  const token = useMemo(
    () => async () => {
      const { token } = await request<{ token: string | null }>("GET", `api/leaderboard/${board}/token`);
      if (token !== null) return token;
      setPruned(true);
      // Without a token the store does not connect.
      throw new Error("The job was pruned");
    },
    [board],
  );
  if (!isPruned) return <LiveLog job={job} token={token} />;
  return (
    <Empty title="The log was deleted">
      <p>The results are on this page.</p>
    </Empty>
  );
}

function LiveLog({ job: id, token }: { job: string; token: () => Promise<string> }) {
  const { store, job } = useJob(id, token, { server: resolveUrl("stillwake") });
  // The stream reports a new state before the next refetch.
  useRefreshOnChange(job?.state);
  return (
    <div className="live-job">
      <JobProgress store={store} className="progress" />
      <JobLog store={store} className="log" />
    </div>
  );
}
