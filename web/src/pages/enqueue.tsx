// Enqueues a job by hand: select a pipeline, then fill in its input.

import { escapeText } from "@stillwake/ui/format.ts";
import { Empty, Loaded, PageHead, Panel } from "@stillwake/ui/parts/panel.tsx";
import { Link } from "wouter";
import { usePipelines } from "../api/resources.ts";
import { Command } from "../parts/copy.tsx";
import "../css/enqueue.css";
import { EnqueueForm } from "./enqueue/form.tsx";
import { PipelineTable } from "./enqueue/pipeline-table.tsx";

export default function EnqueuePage({ params: { pipeline } }: { params: Record<string, string | undefined> }) {
  return pipeline === undefined ? <PipelineSelection /> : <PipelineForm name={pipeline} />;
}

function PipelineSelection() {
  const pipelines = usePipelines();
  return (
    <>
      <PageHead title="Enqueue" note="Select a pipeline" />
      <Panel title="Pipelines" bare>
        <Loaded query={pipelines}>
          {({ pipelines: all }) => (all.length === 0 ? <NoPipeline /> : <PipelineTable pipelines={all} />)}
        </Loaded>
      </Panel>
    </>
  );
}

function NoPipeline() {
  return (
    <Empty title="No pipelines yet">
      <p>A worker registers its pipelines when it starts. This command creates an example:</p>
      <Command>npx stillwake init</Command>
    </Empty>
  );
}

function PipelineForm({ name }: { name: string }) {
  const pipelines = usePipelines();
  return (
    <>
      <PageHead
        title={
          <>
            Enqueue <span className="untrusted">{escapeText(name)}</span>
          </>
        }
        note={<Link href="/enqueue">All pipelines</Link>}
      />
      <Loaded query={pipelines}>
        {({ pipelines: all }) => {
          const found = all.find((pipeline) => pipeline.name === name);
          if (!found) return <NotFound />;
          return (
            <div className="enqueue">
              <EnqueueForm key={name} pipeline={found} />
            </div>
          );
        }}
      </Loaded>
    </>
  );
}

function NotFound() {
  return (
    <div className="panel">
      <Empty title="Pipeline not found">
        <p>
          No pipeline with this name is registered. <Link href="/enqueue">See all pipelines</Link>
        </p>
      </Empty>
    </div>
  );
}
