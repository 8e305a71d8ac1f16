// The record of acts: who did what to what, from where, and how things were before and after.
import { type FormEvent, useId, useState } from "react";
import { Link } from "wouter";
import { type nouns, useActs, useTokens } from "../../api/nouns.ts";
import { Button } from "../../parts/button.tsx";
import { Moment } from "../../parts/moment.tsx";
import { Pager } from "../../parts/pager.tsx";
import { Asked, Empty, Panel } from "../../parts/panel.tsx";
import { Payload } from "../../parts/payload.tsx";
import { type Column, Table } from "../../parts/table.tsx";
import { inert, shortId, wholeTime } from "../../parts/words.ts";
import "../../look/acts.css";

const UUID = /^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$/i;

export function ActPanel({
  ready,
  filters,
  onFilter,
}: {
  /** What stands above it has come: shown sooner, it would be pushed down. It asks meanwhile. */
  ready: boolean;
  filters: URLSearchParams;
  onFilter: (next: URLSearchParams) => void;
}) {
  const target = filters.get("target") ?? "";
  const cursor = filters.get("cursor") ?? "";
  const acts = useActs({ limit: 50, ...(target && { target }), ...(cursor && { cursor }) });
  const [open, setOpen] = useState<string>();
  const columns: Column<nouns.Act>[] = [
    { head: "Who", width: "18%", cell: (act) => <Actor act={act} /> },
    { head: "Did", width: "20%", cell: (act) => <Deed act={act} /> },
    { head: "To", cell: (act) => <Target act={act} /> },
    {
      head: "From",
      width: "15%",
      cell: ({ address }) => <span className="soft foreign">{address === null ? "–" : inert(address)}</span>,
    },
    { head: "When", width: "104px", cell: ({ at }) => <Moment at={at} /> },
    {
      head: "More",
      width: "104px",
      quiet: true,
      cell: ({ id, before, after }) =>
        (before !== null || after !== null) && (
          <div className="acts">
            <Button aria-expanded={open === id} onClick={() => setOpen(open === id ? undefined : id)}>
              Details
            </Button>
          </div>
        ),
    },
  ];
  if (!ready) return null;
  return (
    <Panel title="Record of acts" bare>
      <TargetFilter key={target} target={target} onFilter={onFilter} />
      <Asked of={acts}>
        {(answer) => (
          <>
            {answer.acts.length === 0 ? (
              <Empty title={target === "" ? "Nothing was done yet" : "Nothing was done to that"}>
                <p>
                  Whatever somebody does through the server is recorded before it is done, and kept for 400 days. Inputs
                  and secrets are not in it.
                </p>
              </Empty>
            ) : (
              <Table
                label="Acts"
                columns={columns}
                rows={answer.acts}
                keyOf={({ id }) => id}
                below={(act) => open === act.id && <Change act={act} />}
              />
            )}
            <Pager
              cursor={cursor}
              next={answer.cursor}
              onGo={(place) =>
                onFilter(new URLSearchParams({ ...(target && { target }), ...(place && { cursor: place }) }))
              }
            />
          </>
        )}
      </Asked>
    </Panel>
  );
}

function TargetFilter({ target, onFilter }: { target: string; onFilter: (next: URLSearchParams) => void }) {
  const id = useId();
  function find(event: FormEvent<HTMLFormElement>): void {
    event.preventDefault();
    const said = String(new FormData(event.currentTarget).get("target")).trim();
    onFilter(new URLSearchParams(said === "" ? {} : { target: said }));
  }
  return (
    <form className="filters" onSubmit={find}>
      <div className="field act-target">
        <label htmlFor={id}>Done to</label>
        <input
          id={id}
          className="input"
          name="target"
          type="search"
          defaultValue={target}
          placeholder="a job's id, or the name of a pool, limit, schedule…"
          maxLength={500}
        />
      </div>
      <Button type="submit">Find</Button>
      {target !== "" && <Button onClick={() => onFilter(new URLSearchParams())}>Show all</Button>}
    </form>
  );
}

function Actor({ act: { actor, tenant } }: { act: nouns.Act }) {
  return (
    <div className="lines">
      <span className="foreign">{inert(actor)}</span>
      {tenant !== null && <span className="soft foreign">of {inert(tenant)}</span>}
    </div>
  );
}

/** "pausePool" as "pause pool", and what it was refused with. */
function Deed({ act: { act, after } }: { act: nouns.Act }) {
  const refused = after !== null && typeof after === "object" && "refused" in after ? after.refused : undefined;
  return (
    <div className="lines">
      <span className="foreign">{inert(act.replaceAll(/[A-Z]/g, (letter) => ` ${letter.toLowerCase()}`))}</span>
      {typeof refused === "string" && (
        <span className="tag" data-tone="amber">
          refused: {inert(refused)}
        </span>
      )}
      {after === null && <span className="tag">no outcome</span>}
    </div>
  );
}

function Target({ act: { act, target } }: { act: nouns.Act }) {
  const token = useTokens().data?.tokens.find(({ id }) => id === target);
  if (token) return <span className="foreign">{inert(token.name)}</span>;
  if (target === null) return <span className="soft">–</span>;
  if (UUID.test(target) && /job/i.test(act)) {
    return (
      <Link href={`/jobs/${target}`} className="mono">
        job {shortId(target)}
      </Link>
    );
  }
  if (act === "resendWebhook") {
    return (
      <Link href={`/webhooks/${encodeURIComponent(target)}`} className="foreign">
        {inert(target)}
      </Link>
    );
  }
  return <span className="foreign">{inert(target)}</span>;
}

function Change({ act: { at, before, after } }: { act: nouns.Act }) {
  return (
    <div className="change">
      <p className="soft small">
        {wholeTime(at)}
        {after === null && ". There is no outcome: it is under way, or the server died during it."}
      </p>
      <div className="change-sides">
        <Side title="Before" value={before} />
        <Side title="After" value={after} />
      </div>
    </div>
  );
}

function Side({ title, value }: { title: string; value: unknown }) {
  return (
    <div>
      <h3>{title}</h3>
      {value === null ? (
        <p className="soft small">nothing is recorded</p>
      ) : (
        <Payload label={title.toLowerCase()} value={value} open />
      )}
    </div>
  );
}
