// Nothing has run here yet: what to press, or what to type.
import type { nouns } from "../../api/nouns.ts";
import { useMay } from "../../api/who.ts";
import { Command } from "../../parts/copy.tsx";
import { Empty, Panel } from "../../parts/panel.tsx";
import { inert } from "../../parts/words.ts";
import { StartButton } from "../enqueue/start.tsx";

export function FirstSteps({ pipelines }: { pipelines: readonly nouns.Pipeline[] }) {
  const { operate } = useMay();
  if (pipelines.length === 0) {
    return (
      <Panel title="Nothing has run here yet" bare>
        <Empty title="Begin with a pipeline">
          <p>A pipeline is one function with steps. This writes one to begin with, and a worker that runs it:</p>
          <Command>npx stillwake init</Command>
          <p>When its worker has started it is known here, and can be started from this page.</p>
        </Empty>
      </Panel>
    );
  }
  if (!operate) {
    return (
      <Panel title="Nothing has run here yet" bare>
        <Empty title="No job was enqueued so far">
          <p>Jobs appear here the moment they are, from code, from SQL, or by somebody who may.</p>
        </Empty>
      </Panel>
    );
  }
  return (
    <Panel title="Nothing has run here yet" bare>
      <Empty title="Start one, and watch it line by line" />
      <ul className="first-steps">
        {pipelines.map((pipeline) => (
          <li key={pipeline.name}>
            <StartButton pipeline={pipeline} kind="main" />
            <span>
              <strong className="foreign">{inert(pipeline.name)}</strong>
              <span className="soft small foreign">{about(pipeline)}</span>
            </span>
          </li>
        ))}
      </ul>
    </Panel>
  );
}

/** What its schema says it is, if it does. */
function about({ inputSchema, pool }: nouns.Pipeline): string {
  const said = (inputSchema as { description?: unknown } | null)?.description;
  return typeof said === "string" ? inert(said) : `pool ${inert(pool)}`;
}
