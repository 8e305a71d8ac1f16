// What hangs on a job: what went in and came out, files, webhooks, and the facts.
import type { ReactNode } from "react";
import { Link } from "wouter";
import { addressOf } from "../../api/call.ts";
import { type nouns, ofJob, useJobWebhooks } from "../../api/nouns.ts";
import { useMay } from "../../api/who.ts";
import { Moment, useNow } from "../../parts/moment.tsx";
import { Panel } from "../../parts/panel.tsx";
import { Payload } from "../../parts/payload.tsx";
import { dayTime, inert, several, shortId, size, wholeTime } from "../../parts/words.ts";
import { WebhookMark } from "../webhooks/mark.tsx";
import { FailureDetails } from "./failure.tsx";
import { useArtifactsOf } from "./use-job-data.ts";

export function FailurePanel({ failure }: { failure: nouns.Job["failure"] }) {
  if (!failure) return null;
  return (
    <Panel title="What went wrong">
      <FailureDetails failure={failure} />
    </Panel>
  );
}

export function InOut({ job: { input, output, state } }: { job: nouns.Job }) {
  return (
    <Panel title="Input and output">
      <div className="job-in-out">
        <Payload label="input" value={input} />
        {state === "completed" ? (
          <Payload label="output" value={output} />
        ) : (
          <span className="soft small">There is an output when it has completed.</span>
        )}
      </div>
    </Panel>
  );
}

export function Artifacts({ id }: { id: string }) {
  const { data } = useArtifactsOf(id);
  const artifacts = data?.artifacts ?? [];
  if (artifacts.length === 0) return null;
  return (
    <Panel title="Artifacts" acts={<span className="soft small">{several(artifacts.length, "file")}</span>} bare>
      <ul className="job-files">
        {artifacts.map(({ name, size: bytes, contentType, savedAt, sha256 }) => (
          <li key={name} title={`SHA-256 ${sha256}`}>
            <a
              href={addressOf(ofJob(id, `/artifacts/${name.split("/").map(encodeURIComponent).join("/")}`))}
              download={name.split("/").at(-1)}
              className="foreign"
            >
              {inert(name)}
            </a>
            <span className="small soft foreign">
              {size(bytes)} · {inert(contentType)} · <Moment at={savedAt} />
            </span>
          </li>
        ))}
      </ul>
    </Panel>
  );
}

export function Webhooks({ id, over }: { id: string; over: boolean }) {
  const { oversee } = useMay();
  const { data } = useJobWebhooks(id, oversee && over);
  const webhooks = data?.webhooks ?? [];
  if (!oversee || webhooks.length === 0) return null;
  return (
    <Panel title="Webhooks" bare>
      <ul className="job-files">
        {webhooks.map(({ id: webhook, endpoint, url, state, attempts, nextAt, deliveries }) => {
          const last = deliveries.at(-1);
          return (
            <li key={webhook}>
              <span className="job-webhook">
                <WebhookMark state={state} />
                <Link href={`/webhooks/${encodeURIComponent(webhook)}`} className="foreign">
                  {inert(endpoint || url)}
                </Link>
              </span>
              <span className="small soft foreign">
                {attempts === 0 ? "not tried yet" : several(attempts, "delivery", "deliveries")}
                {last && `, the last answered ${last.status ?? inert(last.error ?? "nothing")}`}
                {state === "pending" && nextAt && <Next at={nextAt} />}
              </span>
            </li>
          );
        })}
      </ul>
    </Panel>
  );
}

function Next({ at }: { at: string }) {
  const now = useNow();
  return Date.parse(at) <= now ? (
    ", the next is due"
  ) : (
    <>
      , next <Moment at={at} />
    </>
  );
}

export function Facts({ job }: { job: nouns.Job }) {
  const { parent, schedule } = job;
  const facts: [string, ReactNode][] = [
    ["Job", <span className="mono foreign">{job.id}</span>],
    ["Pool", inert(job.pool)],
    ["Worker", job.worker && inert(job.worker)],
    ["Crashes", job.crashes > 0 && job.crashes],
    ["Priority", job.priority !== 0 && job.priority],
    ["Created", <When at={job.createdAt} />],
    ["Due", (job.state === "queued" || job.state === "paused") && job.runAt && <When at={job.runAt} />],
    ["Started", job.startedAt && <When at={job.startedAt} />],
    ["Ended", job.endedAt && <When at={job.endedAt} />],
    ["Expires", job.expiresAt && <When at={job.expiresAt} />],
    ["Key", job.key && inert(job.key)],
    ["Tenant", job.tenant && inert(job.tenant)],
    ["Idempotency key", job.idempotencyKey && inert(job.idempotencyKey)],
    ["Schedule", schedule && `${inert(schedule.name)}, slot ${inert(schedule.slot)}`],
    [
      "Parent",
      parent && (
        <>
          <Link href={`/jobs/${parent.id}`}>job …{shortId(parent.id)}</Link>, {inert(parent.spawn)} no.{" "}
          {parent.index + 1}
        </>
      ),
    ],
    ["Epoch", job.epoch],
  ];
  return (
    <Panel title="Facts">
      <dl className="facts">
        {facts
          .filter(([, value]) => value)
          .map(([name, value]) => (
            <div key={name} className="job-fact">
              <dt>{name}</dt>
              <dd className="foreign">{value}</dd>
            </div>
          ))}
      </dl>
    </Panel>
  );
}

function When({ at }: { at: string }) {
  return (
    <time dateTime={at} title={wholeTime(at)} className="number">
      {dayTime(at)}
    </time>
  );
}
