// One webhook: what it says, and every try at telling it.
import type { ReactNode } from "react";
import { Link } from "wouter";
import { useAct } from "../api/ask.ts";
import { type nouns, useEndpoints, useWebhook } from "../api/nouns.ts";
import { useMay } from "../api/who.ts";
import { Ask, Button } from "../parts/button.tsx";
import { Command } from "../parts/copy.tsx";
import { Moment } from "../parts/moment.tsx";
import { Asked, Empty, PageHead, Panel } from "../parts/panel.tsx";
import { Payload } from "../parts/payload.tsx";
import { type Column, Table } from "../parts/table.tsx";
import { dayTime, inert, several, span } from "../parts/words.ts";
import "../look/webhooks.css";
import { useOverdue, WebhookMark } from "./webhooks/mark.tsx";

export default function WebhookPage({ params }: { params: Record<string, string | undefined> }) {
  const id = params.id!;
  const webhook = useWebhook(id);
  const may = useMay();
  return (
    <>
      <PageHead
        title={webhook.data ? <span className="foreign">{inert(webhook.data.event)}</span> : "Webhook"}
        note={<Link href="/webhooks">All webhooks</Link>}
      >
        {may.manage && webhook.data && <Resend webhook={webhook.data} />}
      </PageHead>
      <Asked of={webhook}>
        {(found) => (
          <>
            <Overdue webhook={found} />
            <Panel title="What is told">
              <div className="told">
                <Facts webhook={found} />
                <Payload label="body" value={bodyOf(found.body)} />
              </div>
            </Panel>
            <Panel title={several(found.deliveries.length, "delivery", "deliveries")} bare>
              {found.deliveries.length === 0 ? (
                <Empty title="Not tried yet">
                  <p>A worker, or stillwake webhooks send, tries as soon as it is due.</p>
                </Empty>
              ) : (
                <Table label="Deliveries" columns={columns} rows={triesOf(found)} keyOf={({ n }) => String(n)} />
              )}
            </Panel>
          </>
        )}
      </Asked>
    </>
  );
}

function Overdue({ webhook: { nextAt } }: { webhook: nouns.Webhook }) {
  if (!useOverdue(nextAt)) return null;
  return (
    <div className="callout" data-tone="amber">
      <strong>
        A try was due <Moment at={nextAt} />, and nobody has made it
      </strong>
      <span className="small">
        Either no worker that sends is awake, or its receiver fails and is tried one at a time. This sends what is due:
      </span>
      <Command>npx stillwake webhooks send</Command>
    </div>
  );
}

function Facts({ webhook }: { webhook: nouns.Webhook }) {
  const { endpoint, url, jobId, attempts, createdAt, id } = webhook;
  return (
    <dl className="facts">
      <dt>State</dt>
      <dd>
        <WebhookMark state={webhook.state} />
      </dd>
      <dt>Next</dt>
      <dd>
        <Next webhook={webhook} />
      </dd>
      <dt>Tries</dt>
      <dd className="number">{attempts} of 10</dd>
      <dt>Endpoint</dt>
      <dd>
        <Link href={`/webhooks?endpoint=${encodeURIComponent(endpoint)}`} className="foreign">
          {inert(endpoint)}
        </Link>
      </dd>
      <dt>URL</dt>
      <dd className="foreign">{inert(url)}</dd>
      <dt>Job</dt>
      <dd>
        <Link href={`/jobs/${jobId}`} className="mono">
          {jobId}
        </Link>
      </dd>
      <dt>Since</dt>
      <dd>
        <Moment at={createdAt} />
      </dd>
      <dt>Id</dt>
      <dd className="mono foreign">{inert(id)}</dd>
    </dl>
  );
}

function Next({ webhook: { state, nextAt, endedAt, endpoint } }: { webhook: nouns.Webhook }): ReactNode {
  const { data } = useEndpoints(state === "pending" && nextAt === null);
  const isOverdue = useOverdue(nextAt);
  if (state === "delivered")
    return (
      <>
        nothing: it has arrived <Moment at={endedAt} />
      </>
    );
  if (state === "failed")
    return (
      <>
        nothing: it was given up <Moment at={endedAt} />
      </>
    );
  if (nextAt !== null)
    return (
      <>
        a try{isOverdue && " that was due"} <Moment at={nextAt} />
      </>
    );
  const isHeld = data?.endpoints.some(({ name, disabledAt }) => name === endpoint && disabledAt !== null);
  return isHeld ? "held back: its endpoint is disabled" : "a try that is under way";
}

/** Text that is no JSON is shown as the text it is. */
function bodyOf(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return text;
  }
}

type Delivery = nouns.Webhook["deliveries"][number];
type Try = { n: number; delivery: Delivery | undefined };

const MAX_TRIES = 200;

/** Latest first. A number that is missing is a try whose sender died before it could tell. */
function triesOf({ deliveries }: nouns.Webhook): Try[] {
  const known = new Map(deliveries.map((one) => [Number(one.n), one]));
  const numbers = [...known.keys()];
  const [least, last] = [Math.min(...numbers), Math.max(...numbers)];
  const first = Math.max(least, last - MAX_TRIES + 1);
  return Array.from({ length: last - first + 1 }, (_, place) => ({
    n: last - place,
    delivery: known.get(last - place),
  }));
}

const columns: Column<Try>[] = [
  { head: "Try", width: "64px", cell: ({ n }) => <span className="number">#{n}</span> },
  {
    head: "Began",
    width: "152px",
    cell: ({ delivery }) => <span className="number">{delivery ? dayTime(delivery.startedAt) : "–"}</span>,
  },
  { head: "Answer", width: "24%", cell: ({ delivery }) => <Answer delivery={delivery} /> },
  {
    head: "Took",
    width: "88px",
    number: true,
    cell: ({ delivery }) => (delivery ? span(delivery.tookMs) : "–"),
  },
  {
    head: "Response",
    cell: ({ delivery }) =>
      delivery?.response ? (
        <pre className="response">{inert(delivery.response)}</pre>
      ) : (
        <span className="soft">nothing</span>
      ),
  },
  {
    head: "Sender",
    width: "16%",
    cell: ({ delivery }) => <span className="soft foreign">{delivery ? inert(delivery.sender) : "–"}</span>,
  },
];

function Answer({ delivery }: { delivery: Delivery | undefined }) {
  if (!delivery) return <span className="soft">its sender died before it could tell</span>;
  const { status, error } = delivery;
  const isGood = status !== null && status >= 200 && status < 300;
  return (
    <div className="lines">
      <span className="tag" data-tone={isGood ? "good" : "bad"}>
        {status ?? "no answer"}
      </span>
      {error !== null && <span className="foreign">{inert(error)}</span>}
    </div>
  );
}

function Resend({ webhook: { id, state } }: { webhook: nouns.Webhook }) {
  const { act, busy } = useAct();
  const resend = () =>
    act({ path: `/v1/webhooks/${encodeURIComponent(id)}/resend`, done: "It is sent again, with ten new tries" });
  if (state !== "delivered") {
    return (
      <Button kind="main" disabled={busy} onClick={resend}>
        Resend
      </Button>
    );
  }
  return (
    <Ask
      label="Resend…"
      title="Send it again"
      text="It has arrived already. The receiver is told once more, under the same id."
      yes="Resend"
      kind="main"
      quiet
      disabled={busy}
      onYes={resend}
    />
  );
}
