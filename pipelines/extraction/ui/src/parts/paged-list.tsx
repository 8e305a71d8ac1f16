// A list of the API with filters, read page by page.
import type { Page } from "@stillwake/ui/api/json.ts";
import { useApiQuery } from "@stillwake/ui/api/query.ts";
import { formatCount } from "@stillwake/ui/format.ts";
import { Button } from "@stillwake/ui/parts/button.tsx";
import { Empty, Loaded } from "@stillwake/ui/parts/panel.tsx";
import { SearchBox } from "@stillwake/ui/parts/search-box.tsx";
import { type Column, Table } from "@stillwake/ui/parts/table.tsx";
import { type ReactNode, useId, useState } from "react";

const PAGE_SIZE = 50;

export interface SelectFilter {
  name: string;
  label: string;
  /** The first option is the default. */
  options: readonly (readonly [value: string, label: string])[];
}

export function PagedList<Row>({
  label,
  path,
  version,
  columns,
  keyOf,
  filters = [],
  searchLabel,
  empty,
}: {
  label: string;
  path: string;
  /** Changes when there may be other rows. */
  version: string;
  columns: readonly Column<Row>[];
  keyOf: (row: Row) => string;
  filters?: readonly SelectFilter[];
  searchLabel: string;
  /** Shown if there are no rows and no filters are set. */
  empty: ReactNode;
}) {
  const [values, setValues] = useState<Record<string, string>>({});
  const [text, setText] = useState("");
  // The cursors of the pages up to the current one: the API has no cursor for the previous page.
  const [cursors, setCursors] = useState<string[]>([]);
  const page = useApiQuery<Page<Row>>(path, {
    query: { ...values, limit: PAGE_SIZE, q: text.trim(), cursor: cursors.at(-1) },
    once: true,
    version,
  });
  const isFiltered = text.trim() !== "" || cursors.length > 0 || Object.values(values).some((value) => value !== "");
  const offset = cursors.length * PAGE_SIZE;
  return (
    <>
      <div className="filters">
        {filters.map((filter) => (
          <Select
            key={filter.name}
            filter={filter}
            value={values[filter.name] ?? ""}
            onChange={(value) => {
              setValues((before) => ({ ...before, [filter.name]: value }));
              setCursors([]);
            }}
          />
        ))}
        <SearchBox
          label={searchLabel}
          onSearch={(query) => {
            setText(query);
            setCursors([]);
          }}
        />
      </div>
      <Loaded query={page}>
        {({ rows, total, cursor }) =>
          rows.length === 0 ? (
            isFiltered ? (
              <Empty title="No results match the filters" />
            ) : (
              empty
            )
          ) : (
            <>
              <Table label={label} columns={columns} rows={rows} keyOf={keyOf} />
              <div className="foot">
                <span className="soft small number" role="status">
                  {total > rows.length
                    ? `${formatCount(offset + 1)} to ${formatCount(offset + rows.length)} of ${formatCount(total)}`
                    : `${formatCount(total)} in total`}
                </span>
                {total > rows.length && (
                  <span className="actions">
                    <Button disabled={cursors.length === 0} onClick={() => setCursors(cursors.slice(0, -1))}>
                      Previous
                    </Button>
                    <Button disabled={cursor === null} onClick={() => setCursors([...cursors, cursor!])}>
                      Next
                    </Button>
                  </span>
                )}
              </div>
            </>
          )
        }
      </Loaded>
    </>
  );
}

function Select({
  filter: { label, options },
  value,
  onChange,
}: {
  filter: SelectFilter;
  value: string;
  onChange: (value: string) => void;
}) {
  const id = useId();
  return (
    <div className="field">
      <label htmlFor={id}>{label}</label>
      <select id={id} className="input" value={value} onChange={(event) => onChange(event.target.value)}>
        {options.map(([option, optionLabel]) => (
          <option key={option} value={option}>
            {optionLabel}
          </option>
        ))}
      </select>
    </div>
  );
}
