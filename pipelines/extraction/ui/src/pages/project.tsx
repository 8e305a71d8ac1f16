// One repository: the live log of its extraction, and its results. An earlier extraction can be selected and is shown in the same panel.
import { useApiQuery, useRefreshOnChange, useSubmit } from "@stillwake/ui/api/query.ts";
import { request, resolveUrl } from "@stillwake/ui/api/request.ts";
import { escapeLine, formatDayTime, shortCommit } from "@stillwake/ui/format.ts";
import { usePageTitle } from "@stillwake/ui/page.ts";
import { Button } from "@stillwake/ui/parts/button.tsx";
import { Empty, ErrorCallout, PageHead, Panel } from "@stillwake/ui/parts/panel.tsx";
import { useMemo } from "react";
import { JobLog, JobProgress, type Run, useJob } from "stillwake/react";
import { Link, useSearchParams } from "wouter";
import { ProjectBadge } from "../parts/badges.tsx";
import { type Extraction, type ExtractionDetail, type Page, PROVIDERS, type Project } from "../types.ts";
import { Facts } from "./facts.tsx";
import { Tabs } from "./tabs.tsx";

const isActive = (extraction: { status: string } | null | undefined) =>
  extraction?.status === "queued" || extraction?.status === "running";

export function ProjectPage({ id }: { id: string }) {
  const project = useApiQuery<Project>(`api/projects/${encodeURIComponent(id)}`, {
    changing: ({ extraction }) => isActive(extraction),
  });
  // A deleted project is a 404 with the data of the last response.
  if (project.error?.status === 404 || project.error?.status === 400) {
    return (
      <>
        <PageHead title="Repository not found" />
        <p>
          It was deleted, or the URL is wrong. <Link href="/">See all repositories</Link>
        </p>
      </>
    );
  }
  if (project.data) return <ProjectView project={project.data} />;
  return project.error ? <ErrorCallout error={project.error} /> : <p className="soft">Loading…</p>;
}

function ProjectView({ project }: { project: Project }) {
  const [params, setParams] = useSearchParams();
  const { submit, busy, error } = useSubmit();
  const last = project.extraction;
  // `looked` is part of it: a retried earlier extraction also brings new results.
  const version = `${last?.id} ${last?.status} ${JSON.stringify(project.looked)}`;
  const history = useApiQuery<Page<Extraction>>(`api/projects/${project.id}/extractions`, {
    query: { limit: 50 },
    once: true,
    version,
  });
  usePageTitle(`${escapeLine(project.name)} ${project.status}`);
  const selected = params.get("extraction") ?? last?.id;
  const select = (id: string | null) =>
    setParams(
      (before) => {
        const after = new URLSearchParams(before);
        if (id === null || id === last?.id) after.delete("extraction");
        else after.set("extraction", id);
        return after;
      },
      { replace: true },
    );
  const start = async () => {
    if (await submit({ path: `api/projects/${project.id}/extractions` })) select(null);
  };
  return (
    <>
      <PageHead
        title={<span className="untrusted">{escapeLine(project.name)}</span>}
        note={<ProjectBadge status={project.status} />}
      >
        {isActive(last) ? (
          <Button
            kind="danger"
            disabled={busy}
            onClick={() => void submit({ path: `api/extractions/${last!.id}/cancel` })}
          >
            Cancel
          </Button>
        ) : (
          <Button kind="main" disabled={busy} onClick={() => void start()}>
            Start extraction
          </Button>
        )}
      </PageHead>
      <p className="soft small untrusted">
        {PROVIDERS[project.provider]} · {escapeLine(project.repository)}
        {project.branch !== null && ` · ${escapeLine(project.branch)}`}
        {project.packagePath !== "." && ` · ${escapeLine(project.packagePath)}`}
        {project.commit !== null && (
          <>
            {" "}
            · <code>{shortCommit(project.commit)}</code>
          </>
        )}
      </p>
      {error && <ErrorCallout error={error} />}
      {project.error && (
        <div className="callout" data-tone="bad" role="alert">
          <strong>The last extraction failed</strong>
          <span className="untrusted">{escapeLine(project.error)}</span>
        </div>
      )}
      {selected === undefined ? (
        <Panel title="Extraction" bare>
          <Empty title="Not extracted yet">
            <p>Start an extraction. Its log appears here.</p>
          </Empty>
        </Panel>
      ) : (
        <ExtractionPanel
          key={selected}
          id={selected}
          last={last}
          history={history.data?.rows ?? []}
          onSelect={select}
        />
      )}
      <Tabs project={project} extraction={selected} version={version} />
    </>
  );
}

/** The log of one extraction, with its history to select from, and its figures. */
function ExtractionPanel({
  id,
  last,
  history,
  onSelect,
}: {
  id: string;
  last: Extraction | null;
  history: readonly Extraction[];
  onSelect: (id: string | null) => void;
}) {
  const detail = useApiQuery<ExtractionDetail>(`api/extractions/${encodeURIComponent(id)}`, {
    once: (extraction) => !isActive(extraction) && !extraction.cost?.provisional,
  });
  const token = useMemo(
    () => async () => (await request<{ token: string | null }>("GET", `api/extractions/${id}/token`)).token ?? "",
    [id],
  );
  const { store, job } = useJob(id, token, { server: resolveUrl("stillwake") });
  // The stream reports a new state before the next refetch.
  useRefreshOnChange(job?.state);
  const runs = useMemo<Run[]>(
    () =>
      history.map((extraction) => ({
        id: extraction.id,
        label: formatDayTime(extraction.createdAt),
        state: extraction.status,
        current: extraction.id === id,
      })),
    [history, id],
  );
  const isEarlier = last !== null && last.id !== id;
  const isPruned = detail.data && detail.data.job === null;
  return (
    <Panel
      title={isEarlier ? "Earlier extraction" : "Extraction"}
      actions={isEarlier && <Button onClick={() => onSelect(null)}>Show the latest</Button>}
      bare
    >
      {detail.error?.status === 404 ? (
        <Empty title="Extraction not found" />
      ) : (
        <div className="live-job">
          {isPruned ? (
            <Empty title="The log was deleted">
              <p>The results are below.</p>
            </Empty>
          ) : (
            <>
              <JobProgress store={store} className="progress" />
              <JobLog store={store} runs={runs} onRun={onSelect} className="log" />
            </>
          )}
          {isEarlier && detail.data?.error && (
            <div className="callout" data-tone="bad">
              <span className="untrusted">{escapeLine(detail.data.error)}</span>
            </div>
          )}
          {detail.data && <Facts detail={detail.data} />}
        </div>
      )}
    </Panel>
  );
}
