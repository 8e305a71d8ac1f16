// Is all well? What wants attention comes first, then what runs, waits and ended, then where. A tenant's people see their own jobs instead.
import { useSearchParams } from "wouter";
import {
  useBreakers,
  useEndpoints,
  useJobs,
  useMachines,
  usePipelines,
  usePools,
  useSchedules,
  useStats,
} from "../api/nouns.ts";
import { useMay } from "../api/who.ts";
import { EndedChart } from "../parts/chart.tsx";
import { PageHead, Panel, Wrong } from "../parts/panel.tsx";
import { Toggles } from "../parts/toggles.tsx";
import "../look/overview.css";
import { Figures } from "./overview/figures.tsx";
import { FirstSteps } from "./overview/first-steps.tsx";
import { LatestFailures, LatestJobs } from "./overview/latest.tsx";
import { ByPipeline } from "./overview/pipelines.tsx";
import { useSteady } from "./overview/steady.ts";
import { Trouble, troublesOf } from "./overview/trouble.tsx";
import { Waiting } from "./overview/waiting.tsx";
import { Workers } from "./overview/workers.tsx";

const spans = [
  { value: "15m", says: "15 min", parts: 60, word: "the last 15 minutes" },
  { value: "1h", says: "1 h", parts: 60, word: "the last hour" },
  { value: "6h", says: "6 h", parts: 72, word: "the last 6 hours" },
  { value: "24h", says: "24 h", parts: 96, word: "the last 24 hours" },
] as const;

export function OverviewPage() {
  return useMay().oversee ? <Whole /> : <Share />;
}

function Whole() {
  const [params, setParams] = useSearchParams();
  const span = spans.find(({ value }) => value === params.get("span")) ?? spans[1];
  const stats = useStats(span.value, span.parts);
  const any = useJobs({ limit: 1 });
  const pipelines = usePipelines();
  const breakers = useBreakers();
  const pools = usePools();
  const schedules = useSchedules();
  const endpoints = useEndpoints();
  const machines = useMachines();
  const steady = useSteady(stats.data);
  const asked = [stats, any, pipelines, breakers, pools, schedules, endpoints, machines];
  const wrong = asked.find(({ error }) => error)?.error;
  const head = (
    <PageHead title="Overview">
      <Toggles
        label="How far back"
        options={spans}
        value={span.value}
        onValue={(value) => setParams(value === "1h" ? {} : { span: value })}
      />
    </PageHead>
  );
  // What wants attention stands above the rest: nothing is drawn before all of it is known, so nothing is pushed down.
  if (!stats.data || !steady || asked.some(({ data }) => data === undefined)) {
    return (
      <>
        {head}
        {wrong ? <Wrong error={wrong} /> : <p className="soft overview-begin">One moment…</p>}
      </>
    );
  }
  const known = pipelines.data?.pipelines ?? [];
  if (any.data?.jobs.length === 0 && stats.data.live.queued === 0) {
    return (
      <>
        <PageHead title="Overview" />
        {wrong && <Wrong error={wrong} />}
        <FirstSteps pipelines={known} />
      </>
    );
  }
  const workers = machines.data?.machines ?? [];
  const troubles = troublesOf({
    breakers: breakers.data?.breakers ?? [],
    pools: pools.data?.pools ?? [],
    schedules: schedules.data?.schedules ?? [],
    endpoints: endpoints.data?.endpoints ?? [],
    stats: stats.data,
    workers: workers.length,
  });
  return (
    <>
      {head}
      {wrong ? <Wrong error={wrong} /> : <Trouble troubles={troubles} />}
      <Figures stats={stats.data} word={span.word} workers={workers.length} changing={stats.isPlaceholderData} />
      <div className="overview-pair">
        <Panel title={`Ended in ${span.word}`}>
          <EndedChart parts={steady.parts} spanMs={steady.spanMs} />
        </Panel>
        <Panel title="What waits, and why">
          <Waiting stats={stats.data} />
        </Panel>
      </div>
      <ByPipeline known={known} stats={stats.data} word={span.word} />
      <div className="overview-pair">
        <LatestFailures failed={stats.data.ended.failed} />
        <Workers machines={workers} />
      </div>
    </>
  );
}

function Share() {
  return (
    <>
      <PageHead title="Overview" />
      <LatestJobs />
    </>
  );
}
