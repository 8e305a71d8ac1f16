// What can be done to a job: those acts that its state allows and that the person may do.
import { useLocation } from "wouter";
import { useAct } from "../../api/ask.ts";
import { isOver, type nouns, ofJob } from "../../api/nouns.ts";
import { useMay } from "../../api/who.ts";
import { stateOf } from "../../parts/again.ts";
import { Ask, Button } from "../../parts/button.tsx";
import { inert } from "../../parts/words.ts";
import { Share } from "./share.tsx";
import { Signal } from "./signal.tsx";

export function Acts({ job, awaited, onActed }: { job: nouns.Job; awaited: string; onActed: () => void }) {
  const { operate } = useMay();
  const { act, busy } = useAct();
  const [, go] = useLocation();
  if (!operate) return null;
  const { id, state, waitingFor, pipeline, cancel, pause } = job;
  const over = isOver(state);
  const isRunning = state === "running";
  const held = typeof pause?.breaker === "string";
  const to = async (path: string, done: string, body?: unknown) => {
    if (await act({ path: ofJob(id, path), done, ...(body !== undefined && { body }) })) onActed();
  };
  return (
    <>
      {waitingFor === "event" && state === "queued" && <Signal id={id} awaited={awaited} />}
      {(state === "failed" || state === "cancelled") && (
        <>
          <Button kind="main" disabled={busy} onClick={() => void to("/retry", "It is queued again")}>
            Retry
          </Button>
          <Ask
            label="Retry from the start…"
            quiet
            title="Retry from the start?"
            text="Results of steps that were kept are forgotten, and every step is done again."
            yes="Forget them and retry"
            disabled={busy}
            onYes={() => to("/retry", "It is queued again, from the start", { fromStart: true })}
          />
        </>
      )}
      {state === "paused" && !held && (
        <Button kind="main" disabled={busy} onClick={() => void to("/resume", "It goes on")}>
          Resume
        </Button>
      )}
      {isRunning && pause !== null && cancel === null && (
        <Button disabled={busy} onClick={() => void to("/resume", "It is no longer asked to pause")}>
          Take the pause back
        </Button>
      )}
      {(state === "queued" || isRunning) && (
        <Button
          disabled={busy || pause !== null || cancel !== null}
          onClick={() =>
            void to(
              "/pause",
              isRunning ? "Asked to pause; this attempt goes on until the job next waits" : "It is set aside",
              {},
            )
          }
        >
          {pause === null ? "Pause" : "Asked to pause"}
        </Button>
      )}
      {!over && (
        <Ask
          label={cancel ? "Asked to stop" : "Cancel…"}
          title="Cancel this job?"
          text={
            isRunning
              ? `${inert(pipeline)} is asked to stop, and is stopped if it does not. What its steps have kept stays, and it can be retried.`
              : "It ends without being run. It can be retried."
          }
          yes="Cancel the job"
          disabled={busy || cancel !== null}
          onYes={() => to("/cancel", isRunning ? "It is asked to stop" : "It is cancelled", {})}
        />
      )}
      <Button onClick={() => go(`/enqueue/${encodeURIComponent(pipeline)}`, { state: stateOf(job) })}>
        Enqueue again
      </Button>
      <Share id={id} />
    </>
  );
}
