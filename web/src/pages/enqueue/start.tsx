// Starts a job with one click if its input needs no values; otherwise links to the form.

import { useAction } from "@stillwake/ui/api/query.ts";
import { escapeText } from "@stillwake/ui/format.ts";
import { Button } from "@stillwake/ui/parts/button.tsx";
import { useMemo } from "react";
import { Link, useLocation } from "wouter";
import type { api } from "../../api/resources.ts";
import { createDraft, readDraft } from "../../parts/form/form-draft.ts";
import { type Json, schemaToField } from "../../parts/form/form-model.ts";

export function StartButton({ pipeline, kind }: { pipeline: api.Pipeline; kind?: "main" }) {
  const { name } = pipeline;
  const { run, busy } = useAction();
  const [, navigate] = useLocation();
  const input = useMemo(() => defaultInput(pipeline), [pipeline]);
  if (input === undefined) {
    return (
      <Link href={`/enqueue/${encodeURIComponent(name)}`} className="button" aria-label={`Fill in ${escapeText(name)}`}>
        Fill in
      </Link>
    );
  }
  async function start(): Promise<void> {
    const created = await run<{ id: string }>({ path: "/v1/jobs", body: { pipeline: name, input } });
    if (created) navigate(`/jobs/${created.id}`);
  }
  return (
    <Button kind={kind} disabled={busy} aria-label={`Start ${escapeText(name)}`} onClick={() => void start()}>
      Start
    </Button>
  );
}

/** The input if every required field has a default; otherwise undefined. */
function defaultInput({ inputSchema, sealed }: api.Pipeline): Json | undefined {
  if (inputSchema === null) return undefined;
  const field = schemaToField(inputSchema as Json, sealed);
  if (field.kind !== "group") return undefined;
  const { value, issues } = readDraft(field, createDraft(field, true));
  return issues.length === 0 ? value : undefined;
}
