// One press where nothing has to be said; else the way to the form.
import { useMemo } from "react";
import { Link, useLocation } from "wouter";
import { useAct } from "../../api/ask.ts";
import type { nouns } from "../../api/nouns.ts";
import { Button } from "../../parts/button.tsx";
import { begin, saidBy } from "../../parts/form/form-draft.ts";
import { fieldOf, type Json } from "../../parts/form/form-model.ts";
import { inert } from "../../parts/words.ts";

export function StartButton({ pipeline, kind }: { pipeline: nouns.Pipeline; kind?: "main" }) {
  const { name } = pipeline;
  const { act, busy } = useAct();
  const [, go] = useLocation();
  const input = useMemo(() => readyInput(pipeline), [pipeline]);
  if (input === undefined) {
    return (
      <Link href={`/enqueue/${encodeURIComponent(name)}`} className="button" aria-label={`Fill in ${inert(name)}`}>
        Fill in
      </Link>
    );
  }
  async function start(): Promise<void> {
    const made = await act<{ id: string }>({ path: "/v1/jobs", body: { pipeline: name, input } });
    if (made) go(`/jobs/${made.id}`);
  }
  return (
    <Button kind={kind} disabled={busy} aria-label={`Start ${inert(name)}`} onClick={() => void start()}>
      Start
    </Button>
  );
}

/** What can be sent without asking anybody: defaults for all that is needed. Undefined where there is something to say, or nobody knows. */
function readyInput({ inputSchema, sealed }: nouns.Pipeline): Json | undefined {
  if (inputSchema === null) return undefined;
  const field = fieldOf(inputSchema as Json, sealed);
  if (field.kind !== "group") return undefined;
  const { value, issues } = saidBy(field, begin(field, true));
  return issues.length === 0 ? value : undefined;
}
