// Which jobs: the filters of the list. The address holds them, so that a list can be sent to somebody and the back button goes back.
import { useEffect, useId, useRef, useState } from "react";
import { useSearchParams } from "wouter";
import { type JobFilters, states, usePipelines, usePools } from "../../api/nouns.ts";
import { useMay } from "../../api/who.ts";
import { Button } from "../../parts/button.tsx";
import { StateShape } from "../../parts/state-mark.tsx";
import { Toggles } from "../../parts/toggles.tsx";
import { inert } from "../../parts/words.ts";

const names = ["text", "pipeline", "state", "pool", "key", "tenant", "since", "until", "parent", "waiting"] as const;
type FilterName = (typeof names)[number];
export type Chosen = Partial<Record<FilterName, string>>;

export function useChosen(): [Chosen, (change: Chosen, isTyping?: boolean) => void, () => void] {
  const [params, setParams] = useSearchParams();
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
  return [chosen, change, () => setParams({})];
}

/** What the server is asked, and what is left to be looked for here. */
export function questionOf({ waiting, ...rest }: Chosen): { filters: JobFilters; waiting: string | undefined } {
  const given = Object.entries(rest).filter(([, value]) => value !== undefined);
  return { filters: Object.fromEntries(given), waiting };
}

export function isFiltered(chosen: Chosen): boolean {
  return names.some((name) => chosen[name] !== undefined);
}

const allStates = [
  { value: "", says: "All" },
  ...states.map((state) => ({
    value: state as string,
    says: (
      <>
        <StateShape state={state} /> {state}
      </>
    ),
  })),
];

const reasons: Record<string, string> = {
  machine: "a worker",
  time: "their time",
  retry: "another attempt",
  key: "their key",
  limit: "a limit",
  children: "their children",
  event: "an event",
};

export function Filters({
  chosen,
  onChange,
  onClear,
}: {
  chosen: Chosen;
  onChange: (change: Chosen, isTyping?: boolean) => void;
  onClear: () => void;
}) {
  const { oversee } = useMay();
  const pipelines = usePipelines().data?.pipelines.map(({ name }) => name) ?? [];
  const pools = usePools(oversee).data?.pools.map(({ name }) => name) ?? [];
  const hidden = ["pool", "key", "tenant", "since", "until", "parent", "waiting"] as const;
  const set = hidden.filter((name) => chosen[name] !== undefined);
  const [open, setOpen] = useState(set.length > 0);
  const choice = (name: "pipeline" | "pool", title: string, options: readonly string[]) => (
    <Choice name={name} title={title} options={options} value={chosen[name]} onChange={onChange} />
  );
  return (
    <search className="job-filters">
      <div className="filter-line">
        <Typed name="text" title="Search" hint="Id, key, worker, failure, input" chosen={chosen} onChange={onChange} />
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
        options={allStates}
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
          <Typed name="key" title="Key" chosen={chosen} onChange={onChange} />
          {oversee && <Typed name="tenant" title="Tenant" chosen={chosen} onChange={onChange} />}
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
  useEffect(() => setText(value), [value]);
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
          timer.current = setTimeout(() => onChange({ [name]: target.value.trim() }, true), PAUSE_MS);
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
