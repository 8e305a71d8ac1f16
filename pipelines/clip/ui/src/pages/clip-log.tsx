// The live progress and the live log of a clip.
import { useRefreshOnChange } from "@stillwake/ui/api/query.ts";
import { request, resolveUrl } from "@stillwake/ui/api/request.ts";
import { Empty } from "@stillwake/ui/parts/panel.tsx";
import { useEffect, useMemo } from "react";
import { JobLog, JobProgress, useJob } from "stillwake/react";
import type { Clip } from "../../../src/model.ts";
import { isEnded } from "../labels.ts";

/** `fetchedAt`: when the clip was read. */
export function ClipLog({ clip, fetchedAt }: { clip: Clip; fetchedAt: number }) {
  if (clip.job !== null) return <LiveLog key={clip.job} clip={clip} job={clip.job} fetchedAt={fetchedAt} />;
  return (
    <Empty title="The log was deleted">
      <p>The results are on this page.</p>
    </Empty>
  );
}

function LiveLog({ clip, job: id, fetchedAt }: { clip: Clip; job: string; fetchedAt: number }) {
  const token = useMemo(
    () => async () => (await request<{ token: string | null }>("GET", `api/clips/${clip.id}/token`)).token ?? "",
    [clip.id],
  );
  const { store, job, steps, connection, progress } = useJob(id, token, { server: resolveUrl("stillwake") });
  // The stream reports a new state and a finished stage before the next refetch.
  useRefreshOnChange(job && `${job.state} ${steps.filter(({ state }) => state === "kept").length}`);
  // After a retry. Only after a new response: one from before the end would reopen the stream again and again.
  useEffect(() => {
    if (connection === "over" && !isEnded(clip)) store.reopen();
  }, [fetchedAt]);
  return (
    <div className="live-job">
      {!isEnded(clip) && (
        <div className="progress" data-timed={/\bleft$/.test(progress?.sentence ?? "")}>
          <JobProgress store={store} />
        </div>
      )}
      <JobLog store={store} className="log" />
    </div>
  );
}
