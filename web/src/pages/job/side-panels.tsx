// The panels beside the log of a job: failure, input and output, artifacts, webhooks, facts.

import { resolveUrl } from "@stillwake/ui/api/request.ts";
import { escapeText, formatBytes, formatDateTime, formatDayTime, plural, shortId } from "@stillwake/ui/format.ts";
import { Panel } from "@stillwake/ui/parts/panel.tsx";
import { RelativeTime, useNow } from "@stillwake/ui/parts/time.tsx";
import type { ReactNode } from "react";
import { Link } from "wouter";
import { usePermissions } from "../../api/permissions.ts";
import { type api, jobPath, useJobWebhooks } from "../../api/resources.ts";
import { Payload } from "../../parts/payload.tsx";
import { WebhookBadge } from "../webhooks/state.tsx";
import { FailureDetails } from "./failure.tsx";
import { useArtifacts } from "./use-job-data.ts";

export function FailurePanel({ failure }: { failure: api.Job["failure"] }) {
  if (!failure) return null;
  return (
    <Panel title="Failure">
      <FailureDetails failure={failure} />
    </Panel>
  );
}

export function InputAndOutput({ job: { input, output, state } }: { job: api.Job }) {
  return (
    <Panel title="Input and output">
      <div className="job-payloads">
        <Payload label="input" value={input} />
        {state === "completed" ? (
          <Payload label="output" value={output} />
        ) : (
          <span className="soft small">The output appears when the job completes.</span>
        )}
      </div>
    </Panel>
  );
}

export function Artifacts({ id }: { id: string }) {
  const { data } = useArtifacts(id);
  const artifacts = data?.artifacts ?? [];
  if (artifacts.length === 0) return null;
  return (
    <Panel title="Artifacts" actions={<span className="soft small">{plural(artifacts.length, "file")}</span>} bare>
      <ul className="job-files">
        {artifacts.map(({ name, size: bytes, contentType, savedAt, sha256 }) => (
          <li key={name} title={`SHA-256 ${sha256}`}>
            <a
              href={resolveUrl(jobPath(id, `/artifacts/${name.split("/").map(encodeURIComponent).join("/")}`))}
              download={name.split("/").at(-1)}
              className="untrusted"
            >
              {escapeText(name)}
            </a>
            <span className="small soft untrusted">
              {formatBytes(bytes)} · {escapeText(contentType)} · <RelativeTime at={savedAt} />
            </span>
          </li>
        ))}
      </ul>
    </Panel>
  );
}

export function Webhooks({ id, over }: { id: string; over: boolean }) {
  const { oversee } = usePermissions();
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
                <WebhookBadge state={state} />
                <Link href={`/webhooks/${encodeURIComponent(webhook)}`} className="untrusted">
                  {escapeText(endpoint || url)}
                </Link>
              </span>
              <span className="small soft untrusted">
                {attempts === 0 ? "not sent yet" : plural(attempts, "delivery", "deliveries")}
                {last && `, last response: ${last.status ?? escapeText(last.error ?? "none")}`}
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
    ", next is due"
  ) : (
    <>
      , next <RelativeTime at={at} />
    </>
  );
}

export function Facts({ job }: { job: api.Job }) {
  const { parent, schedule } = job;
  const facts: [string, ReactNode][] = [
    ["Job", <span className="mono untrusted">{job.id}</span>],
    ["Pool", escapeText(job.pool)],
    ["Worker", job.worker && escapeText(job.worker)],
    ["Crashes", job.crashes > 0 && job.crashes],
    ["Priority", job.priority !== 0 && job.priority],
    ["Created", <ExactTime at={job.createdAt} />],
    ["Due", (job.state === "queued" || job.state === "paused") && job.runAt && <ExactTime at={job.runAt} />],
    ["Started", job.startedAt && <ExactTime at={job.startedAt} />],
    ["Ended", job.endedAt && <ExactTime at={job.endedAt} />],
    ["Expires", job.expiresAt && <ExactTime at={job.expiresAt} />],
    ["Key", job.key && escapeText(job.key)],
    ["Tenant", job.tenant && escapeText(job.tenant)],
    ["Idempotency key", job.idempotencyKey && escapeText(job.idempotencyKey)],
    ["Schedule", schedule && `${escapeText(schedule.name)}, occurrence ${escapeText(schedule.occurrence)}`],
    [
      "Parent",
      parent && (
        <>
          <Link href={`/jobs/${parent.id}`}>job …{shortId(parent.id)}</Link>, {escapeText(parent.spawn)} #
          {parent.index + 1}
        </>
      ),
    ],
    ["Epoch", job.epoch],
  ];
  return (
    <Panel title="Details">
      <dl className="facts">
        {facts
          .filter(([, value]) => value)
          .map(([name, value]) => (
            <div key={name} className="job-fact">
              <dt>{name}</dt>
              <dd className="untrusted">{value}</dd>
            </div>
          ))}
      </dl>
    </Panel>
  );
}

function ExactTime({ at }: { at: string }) {
  return (
    <time dateTime={at} title={formatDateTime(at)} className="number">
      {formatDayTime(at)}
    </time>
  );
}
