// A job by hand: choose what to run, say what it needs, and watch it.
import { Link } from "wouter";
import { type nouns, usePipelines } from "../api/nouns.ts";
import { Command } from "../parts/copy.tsx";
import { Asked, Empty, PageHead, Panel } from "../parts/panel.tsx";
import { inert } from "../parts/words.ts";
import "../look/enqueue.css";
import { PipelineTable } from "./enqueue/choice.tsx";
import { EnqueueForm } from "./enqueue/form.tsx";

export default function EnqueuePage({ params: { pipeline } }: { params: Record<string, string | undefined> }) {
  return pipeline === undefined ? <Choice /> : <Form name={pipeline} />;
}

function Choice() {
  const pipelines = usePipelines();
  return (
    <>
      <PageHead title="Enqueue" note="Choose what to run" />
      <Panel title="Pipelines" bare>
        <Asked of={pipelines}>
          {({ pipelines: all }) => (all.length === 0 ? <NoPipeline /> : <PipelineTable pipelines={all} />)}
        </Asked>
      </Panel>
    </>
  );
}

function NoPipeline() {
  return (
    <Empty title="No pipeline is known here yet">
      <p>A worker makes its pipelines known when it starts. This writes one to begin with, and how to start it:</p>
      <Command>npx stillwake init</Command>
    </Empty>
  );
}

function Form({ name }: { name: string }) {
  const pipelines = usePipelines();
  return (
    <>
      <PageHead
        title={
          <>
            Enqueue <span className="foreign">{inert(name)}</span>
          </>
        }
        note={<Link href="/enqueue">All pipelines</Link>}
      />
      <Asked of={pipelines}>
        {({ pipelines: all }) => {
          const found = all.find((one) => one.name === name);
          return found ? <Ready key={name} pipeline={found} /> : <Unknown />;
        }}
      </Asked>
    </>
  );
}

function Ready({ pipeline }: { pipeline: nouns.Pipeline }) {
  return (
    <div className="enqueue">
      <EnqueueForm pipeline={pipeline} />
    </div>
  );
}

function Unknown() {
  return (
    <div className="panel">
      <Empty title="No pipeline of this name is known here">
        <p>
          It was never registered, or is called otherwise. <Link href="/enqueue">See those that are known</Link>
        </p>
      </Empty>
    </div>
  );
}
