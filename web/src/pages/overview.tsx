// Is all well? What wants attention comes first, then what runs, waits and ended, then where. A tenant's people see their own jobs instead.
import { useRef } from "react";
import { useSearchParams } from "wouter";
import { serverNow } from "../api/clock.ts";
import {
  type nouns,
  useBreakers,
  useCosts,
  useEndpoints,
  useJobs,
  useMachines,
  usePipelines,
  usePools,
  useSchedules,
  useStats,
} from "../api/nouns.ts";
import { useMay } from "../api/who.ts";
import { EndedChart } from "../parts/chart/chart.tsx";
import { pays } from "../parts/money.ts";
import { PageHead, Panel, Wrong } from "../parts/panel.tsx";
import { Toggles } from "../parts/toggles.tsx";
import { count, distance, several, span as spanWords } from "../parts/words.ts";
import "../look/overview.css";
import { MonthCost } from "./overview/cost.tsx";
import { Figures } from "./overview/figures.tsx";
import { FirstSteps } from "./overview/first-steps.tsx";
import { LatestFailures, LatestJobs } from "./overview/latest.tsx";
import { ByPipeline } from "./overview/pipelines.tsx";
import { Running, useRunning } from "./overview/running.tsx";
import { useSteady } from "./overview/steady.ts";
import { Trouble } from "./overview/trouble.tsx";
import { troublesOf } from "./overview/troubles.ts";
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
  // Whether there was ever a job is asked only where nothing lately shows that there was.
  const quiet = stats.data !== undefined && isQuiet(stats.data);
  const any = useJobs({ limit: 1 }, quiet);
  const live = stats.data?.live.running ?? 0;
  const running = useRunning(live);
  const pipelines = usePipelines();
  const breakers = useBreakers();
  const pools = usePools();
  const schedules = useSchedules();
  const endpoints = useEndpoints();
  const machines = useMachines();
  const paying = pays(pools.data?.pools);
  const costs = useCosts(paying);
  const steady = useSteady(stats.data);
  const needed = [stats, pipelines, breakers, pools, schedules, endpoints, machines];
  const asked = [...needed, ...(quiet ? [any] : []), ...(live > 0 ? [running] : []), ...(paying ? [costs] : [])];
  const begun = useRef(false);
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
  // What wants attention stands above the rest: nothing is drawn before all of it is known, so nothing is pushed down. Once drawn, it stays.
  if (!stats.data || !steady || (!begun.current && asked.some(({ data }) => data === undefined))) {
    return (
      <>
        {head}
        {wrong ? <Wrong error={wrong} /> : <p className="soft overview-begin">One moment…</p>}
      </>
    );
  }
  begun.current = true;
  const known = pipelines.data?.pipelines ?? [];
  if (quiet && any.data?.jobs.length === 0) {
    return (
      <>
        <PageHead title="Overview" />
        {wrong && <Wrong error={wrong} />}
        <FirstSteps pipelines={known} />
      </>
    );
  }
  const workers = machines.data?.machines ?? [];
  const matters = {
    breakers: breakers.data?.breakers ?? [],
    pools: pools.data?.pools ?? [],
    machines: workers,
    schedules: schedules.data?.schedules ?? [],
    endpoints: endpoints.data?.endpoints ?? [],
    ended: stats.data.ended,
    word: span.word,
  };
  return (
    <>
      {head}
      {wrong ? (
        <Wrong error={wrong} />
      ) : (
        <Trouble troubles={troublesOf(matters, serverNow(), { count, distance, several, span: spanWords })} />
      )}
      <Figures
        stats={stats.data}
        word={span.word}
        workers={workers.filter(({ state }) => state !== "starting").length}
        changing={stats.isPlaceholderData}
      />
      <MonthCost report={paying ? costs.data : undefined} />
      <div className="overview-pair">
        <Running running={live} jobs={live > 0 ? (running.data?.jobs ?? []) : []} />
        <Panel title="What waits, and why">
          <Waiting stats={stats.data} />
        </Panel>
      </div>
      <Panel title={`Ended in ${span.word}`}>
        <EndedChart parts={steady.parts} spanMs={steady.spanMs} />
      </Panel>
      <ByPipeline known={known} stats={stats.data} word={span.word} />
      <div className="overview-pair">
        <LatestFailures failed={stats.data.ended.failed} />
        <Workers machines={workers} />
      </div>
    </>
  );
}

function isQuiet({ live, ended }: nouns.Stats): boolean {
  return [live.queued, live.running, live.paused, ended.completed, ended.failed, ended.cancelled].every(
    (one) => one === 0,
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
