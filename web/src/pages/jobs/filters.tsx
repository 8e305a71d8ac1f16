// Which jobs: the filters of the list. The address holds them, so that a list can be sent to somebody and the back button goes back.
import { useEffect, useId, useRef, useState } from "react";
import { useSearchParams } from "wouter";
import { useAnswer } from "../../api/ask.ts";
import { type JobFilters, type nouns, states, usePipelines } from "../../api/nouns.ts";
import { useMay } from "../../api/who.ts";
import { Button } from "../../parts/button.tsx";
import { StateShape } from "../../parts/state-mark.tsx";
import { Toggles } from "../../parts/toggles.tsx";
import { count, inert } from "../../parts/words.ts";

const names = ["text", "pipeline", "state", "pool", "key", "tenant", "since", "until", "parent", "waiting"] as const;
type FilterName = (typeof names)[number];
export type Chosen = Partial<Record<FilterName, string>>;

interface Choosing {
  chosen: Chosen;
  change: Change;
  clear(): void;
  /** How often all was cleared: what is still being typed then is not to come back. */
  cleared: number;
}

export function useChosen(): Choosing {
  const [params, setParams] = useSearchParams();
  const [cleared, setCleared] = useState(0);
  const chosen: Chosen = Object.fromEntries(names.map((name) => [name, params.get(name) || undefined]));
  const change = (next: Chosen, isTyping = false) =>
    setParams(
      (before) => {
        const after = new URLSearchParams(before);
        for (const [name, value] of Object.entries(next)) {
          if (value) after.set(name, value);
          else after.delete(name);
        }
        return after;
      },
      { replace: isTyping },
    );
  const clear = () => {
    setCleared(cleared + 1);
    setParams({});
  };
  return { chosen, change, clear, cleared };
}

/** What the server is asked, and what is left to be looked for here. */
export function questionOf({ waiting, ...rest }: Chosen): { filters: JobFilters; waiting: string | undefined } {
  const given = Object.entries(rest).filter(([, value]) => value !== undefined);
  return { filters: Object.fromEntries(given), waiting };
}

export function isFiltered(chosen: Chosen): boolean {
  return names.some((name) => chosen[name] !== undefined);
}

/** Those that change are counted, where the numbers are of what the list shows. */
function stateToggles(live: Partial<Record<string, number>> | undefined) {
  const some = states.map((state) => ({
    value: state as string,
    says: (
      <>
        <StateShape state={state} /> {state}
        {live?.[state] !== undefined && <span className="toggle-count number">{count(live[state])}</span>}
      </>
    ),
  }));
  return [{ value: "", says: "All" }, ...some];
}

/** So many are counted in no time, and may be counted often. */
const FEW = 5_000;

/** Of the whole installation: with a filter, or for a tenant, it would be the number of something else. */
function useLiveCounts(chosen: Chosen): nouns.Stats["live"] | undefined {
  const { oversee } = useMay();
  const { state: _, ...rest } = chosen;
  const isWhole = oversee && !isFiltered(rest);
  const stats = useAnswer<nouns.Stats>("/v1/stats", {
    query: { span: "1m", parts: 1 },
    enabled: isWhole,
    moving({ live: { queued, running, paused } }) {
      const all = queued + running + paused;
      return all > 0 && all < FEW;
    },
  });
  return isWhole && stats.data && !stats.data.more ? stats.data.live : undefined;
}

const reasons: Record<string, string> = {
  machine: "a worker",
  time: "their time",
  retry: "another attempt",
  key: "their key",
  limit: "a limit",
  children: "their children",
  event: "an event",
};

export function Filters({ choosing }: { choosing: Choosing }) {
  const { chosen, change: onChange, clear: onClear, cleared } = choosing;
  const { oversee } = useMay();
  const pipelines = usePipelines().data?.pipelines.map(({ name }) => name) ?? [];
  const hidden = ["pool", "key", "tenant", "since", "until", "parent", "waiting"] as const;
  const set = hidden.filter((name) => chosen[name] !== undefined);
  const [open, setOpen] = useState(set.length > 0);
  const known = useAnswer<{ pools: nouns.Pool[] }>("/v1/pools", { enabled: oversee && open, once: true });
  const pools = known.data?.pools.map(({ name }) => name) ?? [];
  const live = useLiveCounts(chosen);
  const choice = (name: "pipeline" | "pool", title: string, options: readonly string[]) => (
    <Choice name={name} title={title} options={options} value={chosen[name]} onChange={onChange} />
  );
  return (
    <search className="job-filters">
      <div className="filter-line">
        <Typed
          key={cleared}
          name="text"
          title="Search"
          hint="Id, key, worker, failure, input"
          chosen={chosen}
          onChange={onChange}
        />
        {choice("pipeline", "Pipeline", pipelines)}
        <Button aria-expanded={open} onClick={() => setOpen(!open)}>
          More filters{set.length > 0 && ` (${set.length})`}
        </Button>
        {isFiltered(chosen) && (
          <Button kind="plain" onClick={onClear}>
            Clear filters
          </Button>
        )}
      </div>
      <Toggles
        label="State"
        options={stateToggles(live)}
        value={chosen.state ?? ""}
        onValue={(state) => onChange({ state, ...(state !== "queued" && { waiting: "" }) })}
      />
      {open && (
        <div className="filter-line">
          {oversee && choice("pool", "Pool", pools)}
          <Choice
            name="waiting"
            title="Waits for"
            options={Object.keys(reasons)}
            words={reasons}
            value={chosen.waiting}
            onChange={({ waiting }) => onChange({ waiting, ...(waiting && { state: "queued" }) })}
          />
          <Typed key={`key ${cleared}`} name="key" title="Key" chosen={chosen} onChange={onChange} />
          {oversee && (
            <Typed key={`tenant ${cleared}`} name="tenant" title="Tenant" chosen={chosen} onChange={onChange} />
          )}
          <When name="since" title="Created since" chosen={chosen} onChange={onChange} />
          <When name="until" title="Created until" chosen={chosen} onChange={onChange} />
          {chosen.parent && (
            <Button onClick={() => onChange({ parent: "" })}>Not only children of {chosen.parent.slice(-8)}</Button>
          )}
        </div>
      )}
    </search>
  );
}

type Change = (change: Chosen, isTyping?: boolean) => void;

function Choice(given: {
  name: FilterName;
  title: string;
  options: readonly string[];
  words?: Record<string, string>;
  value: string | undefined;
  onChange: Change;
}) {
  const { name, title, options, words, value = "", onChange } = given;
  const id = useId();
  // What the address names stays chosen, though nobody here knows it.
  const all = value === "" || options.includes(value) ? options : [...options, value];
  return (
    <div className="field">
      <label htmlFor={id}>{title}</label>
      <select id={id} className="input" value={value} onChange={({ target }) => onChange({ [name]: target.value })}>
        <option value="">any</option>
        {all.map((one) => (
          <option key={one} value={one}>
            {inert(words?.[one] ?? one)}
          </option>
        ))}
      </select>
    </div>
  );
}

/** Asked when the typing pauses. */
const PAUSE_MS = 300;

function Typed(given: { name: FilterName; title: string; hint?: string; chosen: Chosen; onChange: Change }) {
  const { name, title, hint, chosen, onChange } = given;
  const id = useId();
  const value = chosen[name] ?? "";
  const [text, setText] = useState(value);
  const timer = useRef<ReturnType<typeof setTimeout>>(undefined);
  // What was sent comes back by way of the address. It must not take the place of what was typed since, or the space at its end.
  const sent = useRef(value);
  useEffect(() => {
    if (value === sent.current) return;
    sent.current = value;
    clearTimeout(timer.current);
    setText(value);
  }, [value]);
  useEffect(() => () => clearTimeout(timer.current), []);
  return (
    <div className="field" data-name={name}>
      <label htmlFor={id}>{title}</label>
      <input
        id={id}
        className="input"
        type="search"
        placeholder={hint}
        maxLength={200}
        autoComplete="off"
        spellCheck={false}
        value={text}
        onChange={({ target }) => {
          setText(target.value);
          clearTimeout(timer.current);
          timer.current = setTimeout(() => {
            sent.current = target.value.trim();
            onChange({ [name]: sent.current }, true);
          }, PAUSE_MS);
        }}
      />
    </div>
  );
}

function When(given: { name: "since" | "until"; title: string; chosen: Chosen; onChange: Change }) {
  const { name, title, chosen, onChange } = given;
  const id = useId();
  return (
    <div className="field">
      <label htmlFor={id}>{title}</label>
      <input
        id={id}
        className="input"
        type="datetime-local"
        value={localOf(chosen[name])}
        onChange={({ target }) => onChange({ [name]: target.value && new Date(target.value).toISOString() }, true)}
      />
    </div>
  );
}

function localOf(iso: string | undefined): string {
  const at = new Date(iso ?? "");
  if (Number.isNaN(at.getTime())) return "";
  return new Date(at.getTime() - at.getTimezoneOffset() * 60_000).toISOString().slice(0, 16);
}
