// The actions on a job that its state and the user's permissions allow.

import { useAction } from "@stillwake/ui/api/query.ts";
import { escapeText } from "@stillwake/ui/format.ts";
import { Button, ConfirmButton } from "@stillwake/ui/parts/button.tsx";
import { useLocation } from "wouter";
import { usePermissions } from "../../api/permissions.ts";
import { type api, hasEnded, jobPath } from "../../api/resources.ts";
import { enqueueAgainState } from "../enqueue/enqueue-again.ts";
import { Share } from "./share.tsx";
import { Signal } from "./signal.tsx";

export function JobActions({ job, onDone }: { job: api.Job; onDone: () => void }) {
  const { operate } = usePermissions();
  const { run, busy } = useAction();
  const [, navigate] = useLocation();
  if (!operate) return null;
  const { id, state, waitingFor, awaitedEvent, pipeline, cancel, pause } = job;
  const over = hasEnded(state);
  const isRunning = state === "running";
  const isPausedByBreaker = typeof pause?.breaker === "string";
  const act = async (path: string, done: string, body?: unknown) => {
    if (await run({ path: jobPath(id, path), done, ...(body !== undefined && { body }) })) onDone();
  };
  return (
    <>
      {waitingFor === "event" && state === "queued" && <Signal id={id} event={awaitedEvent ?? ""} />}
      {(state === "failed" || state === "cancelled") && (
        <>
          <Button kind="main" disabled={busy} onClick={() => void act("/retry", "The job is queued again")}>
            Retry
          </Button>
          <ConfirmButton
            label="Retry from the start…"
            quiet
            title="Retry from the start?"
            text="Deletes the checkpoints of the job: every step runs again."
            confirm="Delete checkpoints and retry"
            disabled={busy}
            onConfirm={() => act("/retry", "The job is queued again, from the start", { fromStart: true })}
          />
        </>
      )}
      {state === "paused" && !isPausedByBreaker && (
        <Button kind="main" disabled={busy} onClick={() => void act("/resume", "The job is resumed")}>
          Resume
        </Button>
      )}
      {isRunning && pause !== null && cancel === null && (
        <Button disabled={busy} onClick={() => void act("/resume", "The pause request is withdrawn")}>
          Withdraw pause
        </Button>
      )}
      {(state === "queued" || isRunning) && (
        <Button
          disabled={busy || pause !== null || cancel !== null}
          onClick={() =>
            void act("/pause", isRunning ? "Pause requested; the running attempt continues" : "The job is paused", {})
          }
        >
          {pause === null ? "Pause" : "Pause requested"}
        </Button>
      )}
      {!over && (
        <ConfirmButton
          label={cancel ? "Cancel requested" : "Cancel…"}
          title="Cancel this job?"
          text={
            isRunning
              ? `${escapeText(pipeline)} receives a stop request and is killed if it does not stop. Its checkpoints are kept, and it can be retried.`
              : "The job ends without running. It can be retried."
          }
          confirm="Cancel job"
          disabled={busy || cancel !== null}
          onConfirm={() => act("/cancel", isRunning ? "Cancel requested" : "The job is cancelled", {})}
        />
      )}
      <Button onClick={() => navigate(`/enqueue/${encodeURIComponent(pipeline)}`, { state: enqueueAgainState(job) })}>
        Enqueue again
      </Button>
      <Share id={id} />
    </>
  );
}
