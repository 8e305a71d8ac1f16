// The filters of the job list. They are in the URL: a filtered list can be shared, and the back button works.

import { useApiQuery } from "@stillwake/ui/api/query.ts";
import { escapeText, formatCount } from "@stillwake/ui/format.ts";
import { Button } from "@stillwake/ui/parts/button.tsx";
import { StateIcon } from "@stillwake/ui/parts/state-badge.tsx";
import { Toggles } from "@stillwake/ui/parts/toggles.tsx";
import { useEffect, useId, useRef, useState } from "react";
import { useSearchParams } from "wouter";
import { usePermissions } from "../../api/permissions.ts";
import { type api, type JobFilters, states, usePipelines } from "../../api/resources.ts";

const names = ["text", "pipeline", "state", "pool", "key", "tenant", "since", "until", "parent", "waiting"] as const;
type FilterName = (typeof names)[number];
export type JobListFilters = Partial<Record<FilterName, string>>;

interface FilterControl {
  filters: JobListFilters;
  change: Change;
  clear(): void;
  /** Counts clears: a clear resets the inputs, so that pending input is discarded. */
  clearCount: number;
}

export function useFilters(): FilterControl {
  const [params, setParams] = useSearchParams();
  const [clearCount, setClearCount] = useState(0);
  const filters: JobListFilters = Object.fromEntries(names.map((name) => [name, params.get(name) || undefined]));
  const change = (next: JobListFilters, isTyping = false) =>
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
    setClearCount(clearCount + 1);
    setParams({});
  };
  return { filters, change, clear, clearCount };
}

/** The filters of the API, and `waiting`, which is applied in the browser. */
export function toApiFilters({ waiting, ...rest }: JobListFilters): {
  filters: JobFilters;
  waiting: string | undefined;
} {
  const set = Object.entries(rest).filter(([, value]) => value !== undefined);
  return { filters: Object.fromEntries(set), waiting };
}

export function isFiltered(filters: JobListFilters): boolean {
  return names.some((name) => filters[name] !== undefined);
}

/** With the number of jobs in each state that can change, if it is known. */
function stateToggles(live: Partial<Record<string, number>> | undefined) {
  const options = states.map((state) => ({
    value: state as string,
    label: (
      <>
        <StateIcon state={state} /> {state}
        {live?.[state] !== undefined && <span className="toggle-count number">{formatCount(live[state])}</span>}
      </>
    ),
  }));
  return [{ value: "", label: "All" }, ...options];
}

/** The database counts fewer jobs than this quickly, so the count may be refetched often. */
const MAX_FAST_COUNT = 5_000;

/** The counts are of all jobs, so they are shown only without filters and for users of all tenants. */
function useLiveCounts(filters: JobListFilters): api.Stats["live"] | undefined {
  const { oversee } = usePermissions();
  const { state: _, ...rest } = filters;
  const isUnfiltered = oversee && !isFiltered(rest);
  const stats = useApiQuery<api.Stats>("/v1/stats", {
    query: { span: "1m", parts: 1 },
    enabled: isUnfiltered,
    changing({ live: { queued, running, paused } }) {
      const total = queued + running + paused;
      return total > 0 && total < MAX_FAST_COUNT;
    },
  });
  return isUnfiltered && stats.data && !stats.data.more ? stats.data.live : undefined;
}

const waitingLabels: Record<string, string> = {
  machine: "a worker",
  time: "their time",
  retry: "a retry",
  key: "their key",
  limit: "a limit",
  children: "their children",
  event: "an event",
};

export function Filters({ control }: { control: FilterControl }) {
  const { filters, change: onChange, clear: onClear, clearCount } = control;
  const { oversee } = usePermissions();
  const pipelines = usePipelines().data?.pipelines.map(({ name }) => name) ?? [];
  const hidden = ["pool", "key", "tenant", "since", "until", "parent", "waiting"] as const;
  const set = hidden.filter((name) => filters[name] !== undefined);
  const [open, setOpen] = useState(set.length > 0);
  const poolQuery = useApiQuery<{ pools: api.Pool[] }>("/v1/pools", { enabled: oversee && open, once: true });
  const pools = poolQuery.data?.pools.map(({ name }) => name) ?? [];
  const live = useLiveCounts(filters);
  const select = (name: "pipeline" | "pool", title: string, options: readonly string[]) => (
    <SelectFilter name={name} title={title} options={options} value={filters[name]} onChange={onChange} />
  );
  return (
    <search className="job-filters">
      <div className="filter-line">
        <TextFilter
          key={clearCount}
          name="text"
          title="Search"
          placeholder="Id, key, worker, failure, input"
          filters={filters}
          onChange={onChange}
        />
        {select("pipeline", "Pipeline", pipelines)}
        <Button aria-expanded={open} onClick={() => setOpen(!open)}>
          More filters{set.length > 0 && ` (${set.length})`}
        </Button>
        {isFiltered(filters) && (
          <Button kind="plain" onClick={onClear}>
            Clear filters
          </Button>
        )}
      </div>
      <Toggles
        label="State"
        options={stateToggles(live)}
        value={filters.state ?? ""}
        onChange={(state) => onChange({ state, ...(state !== "queued" && { waiting: "" }) })}
      />
      {open && (
        <div className="filter-line">
          {oversee && select("pool", "Pool", pools)}
          <SelectFilter
            name="waiting"
            title="Waiting for"
            options={Object.keys(waitingLabels)}
            labels={waitingLabels}
            value={filters.waiting}
            onChange={({ waiting }) => onChange({ waiting, ...(waiting && { state: "queued" }) })}
          />
          <TextFilter key={`key ${clearCount}`} name="key" title="Key" filters={filters} onChange={onChange} />
          {oversee && (
            <TextFilter
              key={`tenant ${clearCount}`}
              name="tenant"
              title="Tenant"
              filters={filters}
              onChange={onChange}
            />
          )}
          <TimeFilter name="since" title="Created after" filters={filters} onChange={onChange} />
          <TimeFilter name="until" title="Created before" filters={filters} onChange={onChange} />
          {filters.parent && (
            <Button onClick={() => onChange({ parent: "" })}>
              Remove filter: children of {filters.parent.slice(-8)}
            </Button>
          )}
        </div>
      )}
    </search>
  );
}

type Change = (change: JobListFilters, isTyping?: boolean) => void;

function SelectFilter({
  name,
  title,
  options,
  labels,
  value = "",
  onChange,
}: {
  name: FilterName;
  title: string;
  options: readonly string[];
  labels?: Record<string, string>;
  value: string | undefined;
  onChange: Change;
}) {
  const id = useId();
  // A value from the URL stays selected, also if it is unknown.
  const all = value === "" || options.includes(value) ? options : [...options, value];
  return (
    <div className="field">
      <label htmlFor={id}>{title}</label>
      <select id={id} className="input" value={value} onChange={({ target }) => onChange({ [name]: target.value })}>
        <option value="">any</option>
        {all.map((option) => (
          <option key={option} value={option}>
            {escapeText(labels?.[option] ?? option)}
          </option>
        ))}
      </select>
    </div>
  );
}

/** Searches when the typing pauses. */
const PAUSE_MS = 300;

interface FilterProps<Name> {
  name: Name;
  title: string;
  filters: JobListFilters;
  onChange: Change;
}

function TextFilter({
  name,
  title,
  placeholder,
  filters,
  onChange,
}: FilterProps<FilterName> & { placeholder?: string }) {
  const id = useId();
  const value = filters[name] ?? "";
  const [text, setText] = useState(value);
  const timer = useRef<ReturnType<typeof setTimeout>>(undefined);
  // The value returns through the URL. It must not replace what was typed since, or a space at its end.
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
        placeholder={placeholder}
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

function TimeFilter({ name, title, filters, onChange }: FilterProps<"since" | "until">) {
  const id = useId();
  return (
    <div className="field">
      <label htmlFor={id}>{title}</label>
      <input
        id={id}
        className="input"
        type="datetime-local"
        value={toLocalTime(filters[name])}
        onChange={({ target }) => onChange({ [name]: target.value && new Date(target.value).toISOString() }, true)}
      />
    </div>
  );
}

function toLocalTime(iso: string | undefined): string {
  const at = new Date(iso ?? "");
  if (Number.isNaN(at.getTime())) return "";
  return new Date(at.getTime() - at.getTimezoneOffset() * 60_000).toISOString().slice(0, 16);
}
