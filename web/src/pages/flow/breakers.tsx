// Breakers: open or closed, why, and when one job tries again.
import type { UseQueryResult } from "@tanstack/react-query";
import { useState } from "react";
import { useAct, useSubmit } from "../../api/ask.ts";
import type { Refused } from "../../api/call.ts";
import type { nouns } from "../../api/nouns.ts";
import { useMay } from "../../api/who.ts";
import { Ask, Button } from "../../parts/button.tsx";
import { Field, FormDialog, wrongAt } from "../../parts/form/form.tsx";
import { Moment, useNow } from "../../parts/moment.tsx";
import { Asked, Empty, Panel } from "../../parts/panel.tsx";
import { type Column, Table } from "../../parts/table.tsx";
import { count, inert, several, span, wholeTime } from "../../parts/words.ts";
import { Users } from "./users.tsx";

const pathOf = (name: string, act: string) => `/v1/breakers/${encodeURIComponent(name)}/${act}`;

export function BreakerPanel({
  breakers,
  pipelines,
}: {
  breakers: UseQueryResult<{ breakers: nouns.Breaker[] }, Refused>;
  pipelines: readonly nouns.Pipeline[];
}) {
  const may = useMay();
  const columns: Column<nouns.Breaker>[] = [
    { head: "Breaker", width: "18%", cell: ({ name }) => <span className="foreign">{inert(name)}</span> },
    { head: "State", width: "22%", cell: (breaker) => <State breaker={breaker} /> },
    { head: "Why", cell: (breaker) => <Why breaker={breaker} /> },
    {
      head: "Needed by",
      width: "18%",
      cell: ({ name }) => <Users pipelines={pipelines.filter(({ breakers }) => breakers.includes(name))} />,
    },
    ...(may.manage ? [{ head: "Acts", width: "104px", quiet: true as const, cell: acts }] : []),
  ];
  return (
    <Panel title="Breakers" bare>
      <Asked of={breakers}>
        {(answer) =>
          answer.breakers.length === 0 ? (
            <Empty title="No breaker yet">
              <p>
                A breaker stands before something that many jobs need. When it fails again and again it opens: jobs are
                paused with the reason instead of failing one by one, and one of them tries when it is time.
              </p>
              <pre>{'const llm = breaker("llm", { failures: 5, pause: "30s" });'}</pre>
            </Empty>
          ) : (
            <Table label="Breakers" columns={columns} rows={answer.breakers} keyOf={({ name }) => name} />
          )
        }
      </Asked>
    </Panel>
  );
}

/** A contact that is closed, or lifted. */
function State({ breaker: { state, resumeAt } }: { breaker: nouns.Breaker }) {
  const isOpen = state === "open";
  return (
    <div className="lines">
      <span className="breaker" data-state={state}>
        <svg viewBox="0 0 22 16" aria-hidden="true">
          <circle cx="4" cy="11" r="2.4" fill="currentColor" />
          <circle cx="18" cy="11" r="2.4" fill="currentColor" />
          <path
            d={isOpen ? "M4 11 14.5 2.6" : "M4 11h14"}
            stroke="currentColor"
            strokeWidth="2"
            strokeLinecap="round"
          />
        </svg>
        {state}
      </span>
      {isOpen && (resumeAt === null ? <span>until somebody closes it</span> : <Countdown to={resumeAt} />)}
    </div>
  );
}

function Countdown({ to }: { to: string }) {
  const left = Math.ceil((Date.parse(to) - useNow()) / 1000) * 1000;
  return (
    <time dateTime={to} title={wholeTime(to)} className="number">
      {left > 0 ? `one job tries in ${span(left)}` : "the next job tries"}
    </time>
  );
}

function Why({ breaker }: { breaker: nouns.Breaker }) {
  const { state, failures, threshold, openedAt, openedBy, probes, reason } = breaker;
  if (state === "closed") {
    return (
      <span className={failures === 0 ? "soft" : undefined}>
        {failures === 0
          ? `No failure; ${count(threshold)} in a row open it`
          : `${count(failures)} of ${several(threshold, "failure")} in a row`}
      </span>
    );
  }
  return (
    <div className="lines">
      {reason !== null && <span className="foreign">{inert(reason)}</span>}
      <span className="soft">
        {openedBy === null ? (
          `Opened after ${several(failures, "failure")} in a row `
        ) : (
          <span className="foreign">Opened by {inert(openedBy)} </span>
        )}
        <Moment at={openedAt} />
        {probes > 0 && `; ${several(probes, "try", "tries")} failed since`}
      </span>
    </div>
  );
}

function acts(breaker: nouns.Breaker) {
  return <Acts breaker={breaker} />;
}

function Acts({ breaker: { name, state } }: { breaker: nouns.Breaker }) {
  const { act, busy } = useAct();
  const [opening, setOpening] = useState(false);
  return (
    <div className="acts">
      {state === "open" ? (
        <Ask
          label="Close…"
          title={`Close the breaker ${inert(name)}`}
          text="All jobs that it has set aside go on at once. If what is behind it still fails, it opens again."
          yes="Close it"
          kind="main"
          quiet
          disabled={busy}
          onYes={() => act({ path: pathOf(name, "close"), done: `Breaker ${name} is closed` })}
        />
      ) : (
        <Button onClick={() => setOpening(true)}>Open…</Button>
      )}
      {opening && <OpenForm name={name} onClose={() => setOpening(false)} />}
    </div>
  );
}

function OpenForm({ name, onClose }: { name: string; onClose: () => void }) {
  const { submit, ...form } = useSubmit();
  async function open(data: FormData): Promise<void> {
    const time = String(data.get("for")).trim();
    const reason = String(data.get("reason")).trim();
    const body = { ...(time && { for: time }), ...(reason && { reason }) };
    if (await submit({ path: pathOf(name, "open"), body, done: `Breaker ${name} is open` })) onClose();
  }
  return (
    <FormDialog
      title={`Open the breaker ${inert(name)}`}
      yes="Open it"
      form={form}
      fields={["for", "reason"]}
      onSubmit={open}
      onClose={onClose}
    >
      <p className="small">
        No job that needs it is started until it closes. Those are shown as paused, with your reason.
      </p>
      <Field
        name="for"
        label="For how long"
        help="Such as 30m or 2h. Empty: until somebody closes it."
        wrong={wrongAt(form.wrong, "for")}
      >
        {(props) => <input {...props} placeholder="1h" maxLength={50} />}
      </Field>
      <Field name="reason" label="Why" wrong={wrongAt(form.wrong, "reason")}>
        {(props) => <input {...props} maxLength={2000} />}
      </Field>
    </FormDialog>
  );
}
