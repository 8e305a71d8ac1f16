// Cancels or retries the selected jobs in batches, so that it can be stopped in between, and reports the outcome.
import { useRefresh } from "@stillwake/ui/api/query.ts";
import { request } from "@stillwake/ui/api/request.ts";
import { serverNow } from "@stillwake/ui/api/server-clock.ts";
import { formatCount, plural } from "@stillwake/ui/format.ts";
import { Button, ConfirmButton } from "@stillwake/ui/parts/button.tsx";
import { useNotices } from "@stillwake/ui/parts/notices.tsx";
import { useEffect, useMemo, useRef, useState } from "react";
import { appliesTo, type BulkResult, summarizeCancel, summarizeRetry, type Verb, withState } from "./outcome.ts";
import type { JobRowData } from "./row-data.ts";

/** The API accepts twice as many. Smaller batches show more progress and stop sooner. */
const BATCH_SIZE = 100;

export function BulkBar({
  selected,
  rows,
  onChanged,
  onDone,
}: {
  selected: ReadonlySet<string>;
  rows: readonly JobRowData[];
  onChanged: (rows: readonly JobRowData[]) => void;
  onDone: () => void;
}) {
  const [progress, setProgress] = useState<{ verb: Verb; done: number; total: number }>();
  const isStopped = useRef(false);
  useEffect(() => {
    isStopped.current = false;
    return () => {
      isStopped.current = true;
    };
  }, []);
  const notices = useNotices();
  const refresh = useRefresh();
  const jobs = useMemo(() => rows.filter(({ id }) => selected.has(id)), [rows, selected]);
  const cancellable = useMemo(() => jobs.filter(({ state }) => appliesTo("cancel", state)), [jobs]);
  const retryable = useMemo(() => jobs.filter(({ state }) => appliesTo("retry", state)), [jobs]);

  async function apply(
    verb: Verb,
    targets: readonly JobRowData[],
    summarize: (results: BulkResult[]) => string,
  ): Promise<void> {
    isStopped.current = false;
    const results: BulkResult[] = [];
    try {
      for (let from = 0; from < targets.length && !isStopped.current; from += BATCH_SIZE) {
        setProgress({ verb, done: from, total: targets.length });
        const batch = new Map(targets.slice(from, from + BATCH_SIZE).map((row) => [row.id, row]));
        const body = { ids: [...batch.keys()] };
        const { jobs } = await request<{ jobs: Omit<BulkResult, "before">[] }>("POST", `/v1/jobs/${verb}`, { body });
        results.push(...jobs.map((job) => ({ ...job, before: batch.get(job.id)?.state })));
        onChanged(changedRows(jobs, batch));
      }
      if (results.length === targets.length) onDone();
    } catch (error) {
      notices.showError(error);
    } finally {
      // Some batches may have succeeded before one failed.
      const left = targets.length - results.length;
      const unchanged = left > 0 ? `, ${formatCount(left)} unchanged` : "";
      if (results.length > 0) notices.show(`${summarize(results)}${unchanged}`);
      setProgress(undefined);
      refresh();
    }
  }

  if (progress) {
    return (
      <section className="bulk" aria-label="Selected jobs">
        <span className="number" role="status">
          {progress.verb === "cancel" ? "Cancelling" : "Retrying"}: {formatCount(progress.done)} of{" "}
          {formatCount(progress.total)}
        </span>
        <Button
          onClick={() => {
            isStopped.current = true;
          }}
        >
          Stop
        </Button>
      </section>
    );
  }
  return (
    <section className="bulk" aria-label="Selected jobs">
      <span className="number">{plural(selected.size, "job")} selected</span>
      <ConfirmButton
        label="Cancel…"
        title={`Cancel ${plural(cancellable.length, "job")}?`}
        text={`${excluded(selected.size - cancellable.length, "has ended", "have ended")}Waiting jobs end at once; running jobs receive a stop request. Their checkpoints are kept, and they can be retried.`}
        confirm={`Cancel ${plural(cancellable.length, "job")}`}
        disabled={cancellable.length === 0}
        onConfirm={() => apply("cancel", cancellable, summarizeCancel)}
      />
      <ConfirmButton
        label="Retry…"
        kind="main"
        title={`Retry ${plural(retryable.length, "job")}?`}
        text={`${excluded(selected.size - retryable.length, "is neither failed nor cancelled", "are neither failed nor cancelled")}They resume from their last checkpoint.`}
        confirm={`Retry ${plural(retryable.length, "job")}`}
        disabled={retryable.length === 0}
        onConfirm={() => apply("retry", retryable, summarizeRetry)}
      />
      <Button kind="plain" onClick={onDone}>
        Clear selection
      </Button>
    </section>
  );
}

function excluded(number: number, singular: string, many: string): string {
  return number === 0 ? "" : `${formatCount(number)} of the selected jobs ${number === 1 ? singular : many}. `;
}

/** The rows with the states of the response, until they are refetched. */
function changedRows(jobs: readonly BulkResult[], batch: ReadonlyMap<string, JobRowData>): JobRowData[] {
  const at = new Date(serverNow()).toISOString();
  return jobs.flatMap(({ id, state }) => {
    const row = batch.get(id);
    return row && state ? [withState(row, state, at)] : [];
  });
}
