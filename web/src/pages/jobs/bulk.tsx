// What is done to many jobs at once, and an honest word on what came of it.
import { useQueryClient } from "@tanstack/react-query";
import { useState } from "react";
import { call } from "../../api/call.ts";
import { isOver, type JobState } from "../../api/nouns.ts";
import { Ask, Button } from "../../parts/button.tsx";
import { useNotices } from "../../parts/notices.tsx";
import { several } from "../../parts/words.ts";
import { type Answered, cancelledWords, retriedWords } from "./outcome.ts";

/** As many as one call takes. */
const AT_ONCE = 200;

export function BulkBar({
  picked,
  stateOf,
  onDone,
}: {
  picked: ReadonlySet<string>;
  stateOf: (id: string) => JobState | undefined;
  onDone: () => void;
}) {
  const [busy, setBusy] = useState(false);
  const notices = useNotices();
  const known = useQueryClient();
  const ids = [...picked];

  async function act(verb: "cancel" | "retry", words: (answered: Answered[]) => string): Promise<void> {
    setBusy(true);
    const answered: Answered[] = [];
    const before = new Map(ids.map((id) => [id, stateOf(id)]));
    try {
      for (let from = 0; from < ids.length; from += AT_ONCE) {
        const body = { ids: ids.slice(from, from + AT_ONCE) };
        const { jobs } = await call<{ jobs: Omit<Answered, "before">[] }>("POST", `/v1/jobs/${verb}`, { body });
        answered.push(...jobs.map((job) => ({ ...job, before: before.get(job.id) })));
      }
      onDone();
    } catch (error) {
      notices.refuse(error);
    } finally {
      // Some may have been done before the rest was refused.
      if (answered.length > 0) notices.say(words(answered));
      setBusy(false);
      void known.invalidateQueries();
    }
  }

  const open = ids.filter((id) => !isOver(stateOf(id) ?? "queued")).length;
  return (
    <section className="bulk" aria-label="Selected jobs">
      <span className="number">{several(ids.length, "job")} selected</span>
      <Ask
        label="Cancel"
        title={`Cancel ${several(ids.length, "job")}?`}
        text={`${open === 1 ? "1 has" : `${open} have`} not ended. Those that wait end at once, those that run are asked to stop; what their steps have kept stays, and they can be retried.`}
        yes="Cancel them"
        disabled={busy || open === 0}
        onYes={() => act("cancel", cancelledWords)}
      />
      <Ask
        label="Retry"
        kind="main"
        title={`Retry ${several(ids.length, "job")}?`}
        text="Failed and cancelled ones go on from the steps they have kept. The rest stays as it is."
        yes="Retry them"
        disabled={busy || open === ids.length}
        onYes={() => act("retry", retriedWords)}
      />
      <Button kind="plain" disabled={busy} onClick={onDone}>
        Select none
      </Button>
    </section>
  );
}
