// What can be done to a job: those acts that its state allows and that the person may do.
import { useLocation } from "wouter";
import { useAct } from "../../api/ask.ts";
import { isOver, type nouns } from "../../api/nouns.ts";
import { useMay } from "../../api/who.ts";
import { stateOf } from "../../parts/again.ts";
import { Ask, Button } from "../../parts/button.tsx";
import { inert } from "../../parts/words.ts";
import { pathOf } from "./asked.ts";
import { Share } from "./share.tsx";
import { Signal } from "./signal.tsx";

export function Acts({ job, awaited, onActed }: { job: nouns.Job; awaited: string; onActed: () => void }) {
  const { operate } = useMay();
  const { act, busy } = useAct();
  const [, go] = useLocation();
  if (!operate) return null;
  const { id, state, waitingFor, pipeline, cancel, pause } = job;
  const over = isOver(state);
  const held = typeof pause?.breaker === "string";
  const to = async (path: string, done: string, body?: unknown) => {
    if (await act({ path: pathOf(id, path), done, ...(body !== undefined && { body }) })) onActed();
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
            label="Retry from the start"
            kind="plain"
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
      {(state === "queued" || state === "running") && (
        <Button disabled={busy} onClick={() => void to("/pause", "It is set aside", {})}>
          Pause
        </Button>
      )}
      {!over && (
        <Ask
          label={cancel ? "Asked to stop" : "Cancel"}
          title="Cancel this job?"
          text={
            state === "running"
              ? `${inert(pipeline)} is asked to stop, and is stopped if it does not. What its steps have kept stays, and it can be retried.`
              : "It ends without being run. It can be retried."
          }
          yes="Cancel the job"
          disabled={busy || cancel !== null}
          onYes={() => to("/cancel", state === "running" ? "It is asked to stop" : "It is cancelled", {})}
        />
      )}
      <Button onClick={() => go(`/enqueue/${encodeURIComponent(pipeline)}`, { state: stateOf(job) })}>
        Enqueue again
      </Button>
      <Share id={id} />
    </>
  );
}
