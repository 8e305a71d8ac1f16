// Limits and breakers, which all jobs share.

import { PageHead } from "@stillwake/ui/parts/panel.tsx";
import { useBreakers, useLimits, usePipelines } from "../api/resources.ts";
import "../css/limits.css";
import { BreakerPanel } from "./limits/breakers.tsx";
import { LimitPanel } from "./limits/limits.tsx";

export default function LimitsPage() {
  const pipelineQuery = usePipelines();
  const breakers = useBreakers();
  const limits = useLimits();
  const pipelines = pipelineQuery.data?.pipelines ?? [];
  return (
    <>
      <PageHead title="Limits and breakers" note="Shared by all jobs and workers" />
      <BreakerPanel breakers={breakers} pipelines={pipelines} />
      {/* Rendered earlier, it would be pushed down by the panel above. */}
      {!breakers.isPending && !pipelineQuery.isPending && <LimitPanel limits={limits} pipelines={pipelines} />}
    </>
  );
}
