// What many jobs share: budgets of calls, and breakers that stop everybody when something fails again and again.
import { useBreakers, useLimits, usePipelines } from "../api/nouns.ts";
import { PageHead } from "../parts/panel.tsx";
import "../look/flow.css";
import { BreakerPanel } from "./flow/breakers.tsx";
import { LimitPanel } from "./flow/limits.tsx";

export default function FlowPage() {
  const known = usePipelines();
  const breakers = useBreakers();
  const limits = useLimits();
  const pipelines = known.data?.pipelines ?? [];
  return (
    <>
      <PageHead title="Limits and breakers" note="What jobs share, on all workers together" />
      <BreakerPanel breakers={breakers} pipelines={pipelines} />
      {/* Shown sooner, it would be pushed down by what comes above it. */}
      {!breakers.isPending && !known.isPending && <LimitPanel limits={limits} pipelines={pipelines} />}
    </>
  );
}
