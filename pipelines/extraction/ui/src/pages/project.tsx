// One repository: how its extraction goes, line by line, and what it has found. Earlier extractions are chosen in the panel and read in the same place.
import { call, type Pages, useAct, useAnswer } from "@stillwake/kit/ui/ask.ts";
import { Empty, Panel, Wrong } from "@stillwake/kit/ui/parts/panel.tsx";
import { dayTime, inLine, shortCommit } from "@stillwake/kit/ui/parts/words.ts";
import { addressOf, go, Link, placeWith, usePlace } from "@stillwake/kit/ui/place.tsx";
import { useEffect, useMemo, useRef } from "react";
import { JobLog, JobProgress, type Run, useJob } from "stillwake/react";
import { type Detail, type OneExtraction, type OneProject, PROVIDERS } from "../nouns.ts";
import { StatusMark } from "../parts/marks.tsx";
import { Facts } from "./facts.tsx";
import { Tabs } from "./tabs.tsx";

const isOpen = (extraction: { status: string } | null | undefined) =>
  extraction?.status === "queued" || extraction?.status === "running";

export function ProjectPage({ id }: { id: string }) {
  const project = useAnswer<OneProject>(`projects/${id}`, {
    every: ({ extraction }) => (isOpen(extraction) ? 3000 : 30_000),
  });
  if (project.data) return <Known project={project.data} onChanged={project.reload} />;
  if (project.error?.status === 404) {
    return (
      <>
        <h1>There is no such repository</h1>
        <p>
          It was deleted, or the address is wrong. <Link to="">See all repositories</Link>
        </p>
      </>
    );
  }
  return project.error ? <Wrong error={project.error} /> : <h1 className="soft">One moment…</h1>;
}

function Known({ project, onChanged }: { project: OneProject; onChanged: () => void }) {
  const place = usePlace();
  const { act, busy, wrong } = useAct();
  const last = project.extraction;
  // An older extraction that somebody has retried brings something new as well.
  const version = `${last?.id} ${last?.status} ${JSON.stringify(project.looked)}`;
  const history = useAnswer<Pages<OneExtraction>>(`projects/${project.id}/extractions?limit=50`, { version });
  useEffect(() => {
    document.title = `${inLine(project.name)} ${project.status}`;
  }, [project.name, project.status]);
  const chosen = new URLSearchParams(place.split("?")[1]).get("extraction") ?? last?.id;
  const choose = (id: string | null) =>
    go(placeWith(place, { extraction: id === last?.id ? null : id }), { replace: true });
  const start = async () => {
    if (!(await act("POST", `projects/${project.id}/extractions`))) return;
    choose(null);
    onChanged();
  };
  const cancel = async () => {
    if (await act("POST", `extractions/${last!.id}/cancel`)) onChanged();
  };
  return (
    <>
      <div className="page-head">
        <div className="lines">
          <h1 className="foreign">{inLine(project.name)}</h1>
          <p className="soft small foreign">
            {PROVIDERS[project.provider]} · {inLine(project.repository)}
            {project.branch !== null && ` · ${inLine(project.branch)}`}
            {project.packagePath !== "." && ` · ${inLine(project.packagePath)}`}
            {project.commit !== null && (
              <>
                {" "}
                · <code>{shortCommit(project.commit)}</code>
              </>
            )}
          </p>
        </div>
        <StatusMark status={project.status} word={project.status === "new" ? "not extracted yet" : project.status} />
        <div className="acts">
          {isOpen(last) ? (
            <button type="button" className="button" data-kind="danger" disabled={busy} onClick={() => void cancel()}>
              Cancel
            </button>
          ) : (
            <button type="button" className="button" data-kind="main" disabled={busy} onClick={() => void start()}>
              Start extraction
            </button>
          )}
        </div>
      </div>
      {wrong && <Wrong error={wrong} />}
      {project.error && (
        <div className="callout" data-tone="bad" role="alert">
          <strong>The last extraction failed</strong>
          <span className="foreign">{inLine(project.error)}</span>
        </div>
      )}
      {chosen === undefined ? (
        <Panel title="Extraction">
          <Empty title="Nothing has been extracted yet">
            <p>Start an extraction: its lines appear here as they are written.</p>
          </Empty>
        </Panel>
      ) : (
        <Watched
          key={chosen}
          id={chosen}
          last={last}
          all={history.data?.rows ?? []}
          onChoose={choose}
          onEnd={onChanged}
        />
      )}
      <Tabs project={project} extraction={chosen} version={version} onChanged={onChanged} />
    </>
  );
}

/** One extraction as it is written, with those before it to choose from. */
function Watched({
  id,
  last,
  all,
  onChoose,
  onEnd,
}: {
  id: string;
  last: OneExtraction | null;
  all: readonly OneExtraction[];
  onChoose: (id: string | null) => void;
  onEnd: () => void;
}) {
  const detail = useAnswer<Detail>(`extractions/${id}`, {
    every: (one) => (isOpen(one) || one.cost?.provisional ? 3000 : undefined),
  });
  const token = useMemo(
    () => async () => (await call<{ token: string | null }>("GET", `extractions/${id}/token`)).token ?? "",
    [id],
  );
  const { store, job } = useJob(id, token, { server: addressOf("stillwake") });
  const { reload } = detail;
  // The stream knows first that something has happened.
  const state = job?.state;
  const before = useRef(state);
  useEffect(() => {
    if (before.current !== undefined && before.current !== state) {
      reload();
      onEnd();
    }
    before.current = state;
  }, [state, reload, onEnd]);
  const runs = useMemo<Run[]>(
    () => all.map((one) => ({ id: one.id, label: dayTime(one.createdAt), state: one.status, current: one.id === id })),
    [all, id],
  );
  const old = last !== null && last.id !== id;
  const forgotten = detail.data && detail.data.job === null;
  return (
    <Panel title={old ? "Earlier extraction" : "Extraction"} acts={old && <Back onBack={() => onChoose(null)} />}>
      {detail.error?.status === 404 ? (
        <Empty title="There is no such extraction" />
      ) : (
        <div className="watched">
          {forgotten ? (
            <Empty title="Its lines are no longer kept">
              <p>What it came to is below.</p>
            </Empty>
          ) : (
            <>
              <JobProgress store={store} className="progress" />
              <JobLog store={store} runs={runs} onRun={onChoose} className="log" />
            </>
          )}
          {old && detail.data?.error && (
            <div className="callout" data-tone="bad">
              <span className="foreign">{inLine(detail.data.error)}</span>
            </div>
          )}
          {detail.data && <Facts detail={detail.data} />}
        </div>
      )}
    </Panel>
  );
}

function Back({ onBack }: { onBack: () => void }) {
  return (
    <button type="button" className="button" onClick={onBack}>
      See the latest
    </button>
  );
}
