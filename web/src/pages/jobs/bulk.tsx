// What is done to many jobs at once, and an honest word on what came of it. It goes in parts, so that it can be stopped between them.
import { useQueryClient } from "@tanstack/react-query";
import { useEffect, useMemo, useRef, useState } from "react";
import { call } from "../../api/call.ts";
import { serverNow } from "../../api/clock.ts";
import { Ask, Button } from "../../parts/button.tsx";
import { useNotices } from "../../parts/notices.tsx";
import { count, several } from "../../parts/words.ts";
import { type Answered, appliesTo, cancelledWords, changed, retriedWords, type Verb } from "./outcome.ts";
import type { Row } from "./slim.ts";

/** One call takes twice as many; with fewer there is more to see, and it stops sooner. */
const AT_ONCE = 100;

export function BulkBar({
  picked,
  rows,
  onChanged,
  onDone,
}: {
  picked: ReadonlySet<string>;
  rows: readonly Row[];
  onChanged: (rows: readonly Row[]) => void;
  onDone: () => void;
}) {
  const [going, setGoing] = useState<{ verb: Verb; done: number; of: number }>();
  const isStopped = useRef(false);
  useEffect(() => {
    isStopped.current = false;
    return () => {
      isStopped.current = true;
    };
  }, []);
  const notices = useNotices();
  const known = useQueryClient();
  const chosen = useMemo(() => rows.filter(({ id }) => picked.has(id)), [rows, picked]);
  const open = useMemo(() => chosen.filter(({ state }) => appliesTo("cancel", state)), [chosen]);
  const bad = useMemo(() => chosen.filter(({ state }) => appliesTo("retry", state)), [chosen]);

  async function act(verb: Verb, those: readonly Row[], words: (answered: Answered[]) => string): Promise<void> {
    isStopped.current = false;
    const answered: Answered[] = [];
    try {
      for (let from = 0; from < those.length && !isStopped.current; from += AT_ONCE) {
        setGoing({ verb, done: from, of: those.length });
        const part = new Map(those.slice(from, from + AT_ONCE).map((row) => [row.id, row]));
        const body = { ids: [...part.keys()] };
        const { jobs } = await call<{ jobs: Omit<Answered, "before">[] }>("POST", `/v1/jobs/${verb}`, { body });
        answered.push(...jobs.map((job) => ({ ...job, before: part.get(job.id)?.state })));
        onChanged(rowsOf(jobs, part));
      }
      if (answered.length === those.length) onDone();
    } catch (error) {
      notices.refuse(error);
    } finally {
      // Some may have been done before the rest was refused or stopped.
      const left = those.length - answered.length;
      const rest = left > 0 ? `, ${count(left)} left as they were` : "";
      if (answered.length > 0) notices.say(`${words(answered)}${rest}`);
      setGoing(undefined);
      void known.invalidateQueries();
    }
  }

  if (going) {
    return (
      <section className="bulk" aria-label="Selected jobs">
        <span className="number" role="status">
          {going.verb === "cancel" ? "Cancelling" : "Retrying"}: {count(going.done)} of {count(going.of)}
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
      <span className="number">{several(picked.size, "job")} selected</span>
      <Ask
        label="Cancel…"
        title={`Cancel ${several(open.length, "job")}?`}
        text={`${rest(picked.size - open.length, "has ended already and stays as it is", "have ended already and stay as they are")}Those that wait end at once, those that run are asked to stop; what their steps have kept stays, and they can be retried.`}
        yes={`Cancel ${several(open.length, "job")}`}
        disabled={open.length === 0}
        onYes={() => act("cancel", open, cancelledWords)}
      />
      <Ask
        label="Retry…"
        kind="main"
        title={`Retry ${several(bad.length, "job")}?`}
        text={`${rest(picked.size - bad.length, "has not failed and was not cancelled, and stays as it is", "have not failed and were not cancelled, and stay as they are")}They go on from the steps they have kept.`}
        yes={`Retry ${several(bad.length, "job")}`}
        disabled={bad.length === 0}
        onYes={() => act("retry", bad, retriedWords)}
      />
      <Button kind="plain" onClick={onDone}>
        Select none
      </Button>
    </section>
  );
}

function rest(number: number, one: string, many: string): string {
  return number === 0 ? "" : `${count(number)} of those selected ${number === 1 ? one : many}. `;
}

/** What the answer says of the rows, so that none shows what it no longer is. */
function rowsOf(jobs: readonly Answered[], part: ReadonlyMap<string, Row>): Row[] {
  const at = new Date(serverNow()).toISOString();
  return jobs.flatMap(({ id, state }) => {
    const row = part.get(id);
    return row && state ? [changed(row, state, at)] : [];
  });
}
