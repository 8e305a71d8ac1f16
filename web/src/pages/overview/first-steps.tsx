// Shown before the first job: how to create and start one.

import { escapeText } from "@stillwake/ui/format.ts";
import { Empty, Panel } from "@stillwake/ui/parts/panel.tsx";
import { usePermissions } from "../../api/permissions.ts";
import type { api } from "../../api/resources.ts";
import { Command } from "../../parts/copy.tsx";
import { StartButton } from "../enqueue/start.tsx";

export function FirstSteps({ pipelines }: { pipelines: readonly api.Pipeline[] }) {
  const { operate } = usePermissions();
  if (pipelines.length === 0) {
    return (
      <Panel title="No jobs yet" bare>
        <Empty title="Create a pipeline">
          <p>A pipeline is one function with steps. This command creates an example and a worker for it:</p>
          <Command>npx stillwake init</Command>
          <p>When its worker has started, the pipeline appears here and can be started from this page.</p>
        </Empty>
      </Panel>
    );
  }
  if (!operate) {
    return (
      <Panel title="No jobs yet" bare>
        <Empty title="No job has been enqueued">
          <p>Jobs appear here when they are enqueued by code, in SQL, or by an operator.</p>
        </Empty>
      </Panel>
    );
  }
  return (
    <Panel title="No jobs yet" bare>
      <Empty title="Start a job and follow its log" />
      <ul className="first-steps">
        {pipelines.map((pipeline) => (
          <li key={pipeline.name}>
            <StartButton pipeline={pipeline} kind="main" />
            <span>
              <strong className="untrusted">{escapeText(pipeline.name)}</strong>
              <span className="soft small untrusted">{describePipeline(pipeline)}</span>
            </span>
          </li>
        ))}
      </ul>
    </Panel>
  );
}

/** The description of its input schema, if there is one. */
function describePipeline({ inputSchema, pool }: api.Pipeline): string {
  const description = (inputSchema as { description?: unknown } | null)?.description;
  return typeof description === "string" ? escapeText(description) : `pool ${escapeText(pool)}`;
}
