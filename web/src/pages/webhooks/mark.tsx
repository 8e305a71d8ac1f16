// How it stands with a webhook, in a word and a shape, and when it is tried next.
import type { nouns } from "../../api/nouns.ts";
import { Moment, useNow } from "../../parts/moment.tsx";
import { StateShape } from "../../parts/state-mark.tsx";

const shapes = { pending: "queued", delivered: "completed", failed: "failed" } as const;

/** The shapes of job states, with the words of webhooks. */
export function WebhookMark({ state }: { state: nouns.Webhook["state"] }) {
  return (
    <span className="state" data-state={shapes[state]}>
      <StateShape state={shapes[state]} />
      {state}
    </span>
  );
}

/** A sender that is awake tries within seconds. */
const OVERDUE_MS = 60_000;

export function useOverdue(nextAt: string | null): boolean {
  return useNow() - (nextAt === null ? Number.POSITIVE_INFINITY : Date.parse(nextAt)) > OVERDUE_MS;
}

export function NextTry({ at, held }: { at: string | null; held: boolean }) {
  const isOverdue = useOverdue(at);
  if (held) return <span className="tag">held back</span>;
  return (
    <div className="lines">
      <Moment at={at} />
      {isOverdue && (
        <span className="tag" data-tone="amber">
          overdue
        </span>
      )}
    </div>
  );
}
