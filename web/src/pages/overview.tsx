// The overview: problems first, then what runs, waits and has ended. Users of one tenant see their latest jobs instead.

import { serverNow } from "@stillwake/ui/api/server-clock.ts";
import { escapeText, formatCount, formatDuration, formatRelative, plural } from "@stillwake/ui/format.ts";
import { ErrorCallout, PageHead, Panel } from "@stillwake/ui/parts/panel.tsx";
import { Toggles } from "@stillwake/ui/parts/toggles.tsx";
import { useRef } from "react";
import { Link, useSearchParams } from "wouter";
import { usePermissions } from "../api/permissions.ts";
import {
  type api,
  useBreakers,
  useCosts,
  useEndpoints,
  useJobs,
  useMachines,
  usePipelines,
  usePools,
  useSchedules,
  useStats,
} from "../api/resources.ts";
import { EndedChart } from "../parts/chart/chart.tsx";
import { hasCosts } from "../parts/cost.ts";
import "../css/overview.css";
import { MonthCost } from "./overview/cost.tsx";
import { Figures } from "./overview/figures.tsx";
import { FirstSteps } from "./overview/first-steps.tsx";
import { LatestFailures, LatestJobs } from "./overview/latest.tsx";
import { ByPipeline } from "./overview/pipelines.tsx";
import { findProblems, type Problem } from "./overview/problems.ts";
import { Running, useRunning } from "./overview/running.tsx";
import { Waiting } from "./overview/waiting.tsx";
import { Workers } from "./overview/workers.tsx";

const spans = [
  { value: "15m", label: "15 min", parts: 60, text: "the last 15 minutes" },
  { value: "1h", label: "1 h", parts: 60, text: "the last hour" },
  { value: "6h", label: "6 h", parts: 72, text: "the last 6 hours" },
  { value: "24h", label: "24 h", parts: 96, text: "the last 24 hours" },
] as const;

export function OverviewPage() {
  return usePermissions().oversee ? <FullOverview /> : <TenantOverview />;
}

function FullOverview() {
  const [params, setParams] = useSearchParams();
  const span = spans.find(({ value }) => value === params.get("span")) ?? spans[1];
  const stats = useStats(span.value, span.parts);
  // Without recent jobs: was there ever one?
  const hasNoRecentJob = stats.data !== undefined && isEmpty(stats.data);
  const anyJob = useJobs({ limit: 1 }, hasNoRecentJob);
  const runningCount = stats.data?.live.running ?? 0;
  const running = useRunning(runningCount);
  const pipelines = usePipelines();
  const breakers = useBreakers();
  const pools = usePools();
  const schedules = useSchedules();
  const endpoints = useEndpoints();
  const machines = useMachines();
  const withCosts = hasCosts(pools.data?.pools);
  const costs = useCosts(withCosts);
  const chartStats = useStableStats(stats.data);
  const always = [stats, pipelines, breakers, pools, schedules, endpoints, machines];
  const queries = [
    ...always,
    ...(hasNoRecentJob ? [anyJob] : []),
    ...(runningCount > 0 ? [running] : []),
    ...(withCosts ? [costs] : []),
  ];
  const isLoaded = useRef(false);
  const error = queries.find((query) => query.error)?.error;
  const head = (
    <PageHead title="Overview">
      <Toggles
        label="Time range"
        options={spans}
        value={span.value}
        onChange={(value) => setParams(value === "1h" ? {} : { span: value })}
      />
    </PageHead>
  );
  // Rendered when everything has loaded, so that problems at the top do not push the rest down.
  if (!stats.data || !chartStats || (!isLoaded.current && queries.some(({ data }) => data === undefined))) {
    return (
      <>
        {head}
        {error ? <ErrorCallout error={error} /> : <p className="soft overview-loading">Loading…</p>}
      </>
    );
  }
  isLoaded.current = true;
  const known = pipelines.data?.pipelines ?? [];
  if (hasNoRecentJob && anyJob.data?.jobs.length === 0) {
    return (
      <>
        <PageHead title="Overview" />
        {error && <ErrorCallout error={error} />}
        <FirstSteps pipelines={known} />
      </>
    );
  }
  const workers = machines.data?.machines ?? [];
  const sources = {
    breakers: breakers.data?.breakers ?? [],
    pools: pools.data?.pools ?? [],
    machines: workers,
    schedules: schedules.data?.schedules ?? [],
    endpoints: endpoints.data?.endpoints ?? [],
    ended: stats.data.ended,
    timeRange: span.text,
  };
  return (
    <>
      {head}
      {error ? (
        <ErrorCallout error={error} />
      ) : (
        <Problems
          problems={findProblems(sources, serverNow(), { formatCount, formatRelative, plural, formatDuration })}
        />
      )}
      <Figures
        stats={stats.data}
        timeRange={span.text}
        workers={workers.filter(({ state }) => state !== "starting").length}
        changing={stats.isPlaceholderData}
      />
      <MonthCost report={withCosts ? costs.data : undefined} />
      <div className="overview-pair">
        <Running running={runningCount} jobs={runningCount > 0 ? (running.data?.jobs ?? []) : []} />
        <Panel title="Waiting jobs">
          <Waiting stats={stats.data} />
        </Panel>
      </div>
      <Panel title={`Ended in ${span.text}`}>
        <EndedChart parts={chartStats.parts} spanMs={chartStats.spanMs} />
      </Panel>
      <ByPipeline pipelines={known} stats={stats.data} timeRange={span.text} />
      <div className="overview-pair">
        <LatestFailures failed={stats.data.ended.failed} />
        <Workers machines={workers} />
      </div>
    </>
  );
}

function isEmpty({ live, ended }: api.Stats): boolean {
  return [live.queued, live.running, live.paused, ended.completed, ended.failed, ended.cancelled].every(
    (count) => count === 0,
  );
}

/**
 * The stats for the chart. Every response shifts the columns a little and moves jobs between them, so the chart is
 * updated only when a job has ended or the time of a whole column has passed.
 */
function useStableStats(stats: api.Stats | undefined): api.Stats | undefined {
  const shown = useRef<api.Stats>(undefined);
  if (stats && (shown.current === undefined || hasChanged(shown.current, stats))) shown.current = stats;
  return shown.current;
}

function hasChanged(before: api.Stats, now: api.Stats): boolean {
  if (before.spanMs !== now.spanMs || before.parts.length !== now.parts.length) return true;
  const { completed, failed, cancelled } = now.ended;
  const { ended } = before;
  if (completed !== ended.completed || failed !== ended.failed || cancelled !== ended.cancelled) return true;
  const passedMs = Date.parse(now.parts[0]?.at ?? "") - Date.parse(before.parts[0]?.at ?? "");
  return passedMs >= now.spanMs / now.parts.length;
}

function TenantOverview() {
  return (
    <>
      <PageHead title="Overview" />
      <LatestJobs />
    </>
  );
}

function Problems({ problems }: { problems: readonly Problem[] }) {
  if (problems.length === 0) {
    return (
      <p className="callout problems" data-tone="teal">
        All clear: every pool has a worker, no pool is paused, no breaker is open, no schedule is late.
      </p>
    );
  }
  return (
    <section className="callout problems" data-tone="amber" aria-label="Problems">
      <ul>
        {problems.map(({ href, what, why }) => (
          <li key={what}>
            <Link href={href} className="untrusted">
              {escapeText(what)}
            </Link>
            {why && <span className="soft untrusted">{escapeText(why)}</span>}
          </li>
        ))}
      </ul>
    </section>
  );
}
