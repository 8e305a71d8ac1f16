// What became of each pipeline's jobs lately.
import { useState } from "react";
import { Link } from "wouter";
import type { nouns } from "../../api/nouns.ts";
import { useMay } from "../../api/who.ts";
import { Button } from "../../parts/button.tsx";
import { Panel } from "../../parts/panel.tsx";
import { type Column, Table } from "../../parts/table.tsx";
import { count, inert, span } from "../../parts/words.ts";

type Line = nouns.Stats["pipelines"][number];

const AT_FIRST = 12;

export function ByPipeline({
  known,
  stats,
  word,
}: {
  known: readonly nouns.Pipeline[];
  stats: nouns.Stats;
  word: string;
}) {
  const { operate } = useMay();
  const [all, setAll] = useState(false);
  const lines = linesOf(known, stats.pipelines);
  const names = new Set(known.map(({ name }) => name));
  const act: Column<Line> = {
    head: "Enqueue",
    width: "104px",
    quiet: true,
    cell: ({ name }) =>
      names.has(name) && (
        <div className="acts">
          <Link href={`/enqueue/${encodeURIComponent(name)}`} className="button" aria-label={`Enqueue ${inert(name)}`}>
            Enqueue
          </Link>
        </div>
      ),
  };
  return (
    <Panel title="By pipeline" acts={<span className="soft small">{word}</span>} bare>
      <div className="pipelines-lately">
        <Table
          label={`Pipelines in ${word}`}
          columns={operate ? [...columns, act] : columns}
          rows={all ? lines : lines.slice(0, AT_FIRST)}
          keyOf={({ name }) => name}
        />
      </div>
      {!all && lines.length > AT_FIRST && (
        <div className="foot">
          <Button onClick={() => setAll(true)}>Show all {count(lines.length)} pipelines</Button>
        </div>
      )}
    </Panel>
  );
}

const number = (head: string, width: string, cell: Column<Line>["cell"]): Column<Line> => ({
  head,
  width,
  number: true,
  cell,
});

const columns: readonly Column<Line>[] = [
  {
    head: "Pipeline",
    cell: ({ name }) => (
      <Link href={`/jobs?pipeline=${encodeURIComponent(name)}`} className="foreign">
        {inert(name)}
      </Link>
    ),
  },
  number("Completed", "12%", ({ completed }) => <Count value={completed} />),
  number("Failed", "10%", ({ failed }) =>
    failed > 0 ? <span className="bad">{count(failed)}</span> : <Count value={0} />,
  ),
  number("Cancelled", "12%", ({ cancelled }) => <Count value={cancelled} />),
  number("Mean", "12%", ({ meanSeconds }) => <Took seconds={meanSeconds} />),
  number("Longest", "12%", ({ longestSeconds }) => <Took seconds={longestSeconds} />),
];

function Count({ value }: { value: number }) {
  return value === 0 ? <span className="soft">0</span> : count(value);
}

function Took({ seconds }: { seconds: number | null }) {
  return seconds === null ? <span className="soft">–</span> : span(seconds * 1000);
}

/** Those that are registered, and those that were and whose jobs have ended since. By name, so that each keeps its place. */
function linesOf(known: readonly { name: string }[], ended: readonly Line[]): Line[] {
  const none = { completed: 0, failed: 0, cancelled: 0, totalSeconds: 0, meanSeconds: null, longestSeconds: null };
  const lines = new Map<string, Line>(known.map(({ name }) => [name, { name, ...none }]));
  for (const line of ended) lines.set(line.name, line);
  return [...lines.values()].sort((a, b) => (a.name < b.name ? -1 : 1));
}
