// One webhook: its body and its deliveries.

import { useAction } from "@stillwake/ui/api/query.ts";
import { escapeText, formatDayTime, formatDuration, plural } from "@stillwake/ui/format.ts";
import { Button, ConfirmButton } from "@stillwake/ui/parts/button.tsx";
import { Empty, Loaded, PageHead, Panel } from "@stillwake/ui/parts/panel.tsx";
import { type Column, Table } from "@stillwake/ui/parts/table.tsx";
import { RelativeTime } from "@stillwake/ui/parts/time.tsx";
import type { ReactNode } from "react";
import { Link } from "wouter";
import { usePermissions } from "../api/permissions.ts";
import { type api, useEndpoints, useWebhook } from "../api/resources.ts";
import { Command } from "../parts/copy.tsx";
import { Payload } from "../parts/payload.tsx";
import "../css/webhooks.css";
import { useOverdue, WebhookBadge } from "./webhooks/state.tsx";

export default function WebhookPage({ params }: { params: Record<string, string | undefined> }) {
  const id = params.id!;
  const webhook = useWebhook(id);
  const { manage } = usePermissions();
  return (
    <>
      <PageHead
        title={webhook.data ? <span className="untrusted">{escapeText(webhook.data.event)}</span> : "Webhook"}
        note={<Link href="/webhooks">All webhooks</Link>}
      >
        {manage && webhook.data && <Resend webhook={webhook.data} />}
      </PageHead>
      <Loaded query={webhook}>
        {(found) => (
          <>
            <Overdue webhook={found} />
            <Panel title="Webhook">
              <div className="webhook-facts">
                <Facts webhook={found} />
                <Payload label="body" value={parseBody(found.body)} />
              </div>
            </Panel>
            <Panel title={plural(found.deliveries.length, "delivery", "deliveries")} bare>
              {found.deliveries.length === 0 ? (
                <Empty title="Not sent yet">
                  <p>A worker, or stillwake webhooks send, sends it when it is due.</p>
                </Empty>
              ) : (
                <Table
                  label="Deliveries"
                  columns={columns}
                  rows={numberedDeliveries(found)}
                  keyOf={({ n }) => String(n)}
                />
              )}
            </Panel>
          </>
        )}
      </Loaded>
    </>
  );
}

function Overdue({ webhook: { nextAt } }: { webhook: api.Webhook }) {
  if (!useOverdue(nextAt)) return null;
  return (
    <div className="callout" data-tone="amber">
      <strong>
        A delivery was due <RelativeTime at={nextAt} /> and was not sent
      </strong>
      <span className="small">
        No worker that sends webhooks is running, or its receiver fails and gets one delivery at a time. This command
        sends what is due:
      </span>
      <Command>npx stillwake webhooks send</Command>
    </div>
  );
}

function Facts({ webhook }: { webhook: api.Webhook }) {
  const { endpoint, url, jobId, attempts, createdAt, id } = webhook;
  return (
    <dl className="facts">
      <dt>State</dt>
      <dd>
        <WebhookBadge state={webhook.state} />
      </dd>
      <dt>Next</dt>
      <dd>
        <Next webhook={webhook} />
      </dd>
      <dt>Deliveries</dt>
      <dd className="number">{attempts} of 10</dd>
      <dt>Endpoint</dt>
      <dd>
        <Link href={`/webhooks?endpoint=${encodeURIComponent(endpoint)}`} className="untrusted">
          {escapeText(endpoint)}
        </Link>
      </dd>
      <dt>URL</dt>
      <dd className="untrusted">{escapeText(url)}</dd>
      <dt>Job</dt>
      <dd>
        <Link href={`/jobs/${jobId}`} className="mono">
          {jobId}
        </Link>
      </dd>
      <dt>Created</dt>
      <dd>
        <RelativeTime at={createdAt} />
      </dd>
      <dt>Id</dt>
      <dd className="mono untrusted">{escapeText(id)}</dd>
    </dl>
  );
}

function Next({ webhook: { state, nextAt, endedAt, endpoint } }: { webhook: api.Webhook }): ReactNode {
  const { data } = useEndpoints(state === "pending" && nextAt === null);
  const isOverdue = useOverdue(nextAt);
  if (state === "delivered")
    return (
      <>
        none: delivered <RelativeTime at={endedAt} />
      </>
    );
  if (state === "failed")
    return (
      <>
        none: failed <RelativeTime at={endedAt} />
      </>
    );
  if (nextAt !== null)
    return (
      <>
        {isOverdue ? "overdue since" : "delivery"} <RelativeTime at={nextAt} />
      </>
    );
  const isDisabled = data?.endpoints.some(({ name, disabledAt }) => name === endpoint && disabledAt !== null);
  return isDisabled ? "held: its endpoint is disabled" : "sending";
}

/** The text itself if it is not JSON. */
function parseBody(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return text;
  }
}

type Delivery = api.Webhook["deliveries"][number];
type NumberedDelivery = { n: number; delivery: Delivery | undefined };

const MAX_DELIVERIES = 200;

/** Latest first. A missing number is a delivery whose sender died before it recorded the result. */
function numberedDeliveries({ deliveries }: api.Webhook): NumberedDelivery[] {
  const byNumber = new Map(deliveries.map((delivery) => [Number(delivery.n), delivery]));
  const numbers = [...byNumber.keys()];
  const last = Math.max(...numbers);
  const first = Math.max(Math.min(...numbers), last - MAX_DELIVERIES + 1);
  return Array.from({ length: last - first + 1 }, (_, index) => ({
    n: last - index,
    delivery: byNumber.get(last - index),
  }));
}

const columns: Column<NumberedDelivery>[] = [
  { head: "No.", width: "64px", cell: ({ n }) => <span className="number">#{n}</span> },
  {
    head: "Started",
    width: "152px",
    cell: ({ delivery }) => <span className="number">{delivery ? formatDayTime(delivery.startedAt) : "–"}</span>,
  },
  { head: "Result", width: "24%", cell: ({ delivery }) => <DeliveryResult delivery={delivery} /> },
  {
    head: "Took",
    width: "88px",
    number: true,
    cell: ({ delivery }) => (delivery ? formatDuration(delivery.tookMs) : "–"),
  },
  {
    head: "Response",
    cell: ({ delivery }) =>
      delivery?.response ? (
        <pre className="response">{escapeText(delivery.response)}</pre>
      ) : (
        <span className="soft">empty</span>
      ),
  },
  {
    head: "Sender",
    width: "16%",
    cell: ({ delivery }) => <span className="soft untrusted">{delivery ? escapeText(delivery.sender) : "–"}</span>,
  },
];

function DeliveryResult({ delivery }: { delivery: Delivery | undefined }) {
  if (!delivery) return <span className="soft">unknown: its sender died</span>;
  const { status, error } = delivery;
  const isSuccess = status !== null && status >= 200 && status < 300;
  return (
    <div className="lines">
      <span className="tag" data-tone={isSuccess ? "good" : "bad"}>
        {status ?? "no response"}
      </span>
      {error !== null && <span className="untrusted">{escapeText(error)}</span>}
    </div>
  );
}

function Resend({ webhook: { id, state } }: { webhook: api.Webhook }) {
  const { run, busy } = useAction();
  const resend = () =>
    run({ path: `/v1/webhooks/${encodeURIComponent(id)}/resend`, done: "The webhook is sent again" });
  if (state !== "delivered") {
    return (
      <Button kind="main" disabled={busy} onClick={resend}>
        Resend
      </Button>
    );
  }
  return (
    <ConfirmButton
      label="Resend…"
      title="Resend this webhook?"
      text="It was already delivered. The receiver gets it again with the same id."
      confirm="Resend"
      kind="main"
      quiet
      disabled={busy}
      onConfirm={resend}
    />
  );
}
