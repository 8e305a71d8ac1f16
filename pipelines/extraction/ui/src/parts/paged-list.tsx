// A list of the API with its filters, read page by page.
import { type Pages, useAnswer } from "@stillwake/kit/ui/ask.ts";
import { Empty, Shown } from "@stillwake/kit/ui/parts/panel.tsx";
import { type Column, Table } from "@stillwake/kit/ui/parts/table.tsx";
import { count } from "@stillwake/kit/ui/parts/words.ts";
import { type ReactNode, useEffect, useId, useState } from "react";

export interface Choice {
  name: string;
  label: string;
  /** What the address says, and what it means to people; the first is what is chosen at first. */
  options: readonly (readonly [value: string, label: string])[];
}

export function PagedList<Row>({
  label,
  path,
  version,
  columns,
  keyOf,
  choices = [],
  search,
  empty,
}: {
  label: string;
  /** Without a question. */
  path: string;
  /** Another one when there may be other rows. */
  version: string;
  columns: readonly Column<Row>[];
  keyOf: (row: Row) => string;
  choices?: readonly Choice[];
  /** What can be searched. */
  search?: string;
  /** In the place of rows, when there are none without any filter. */
  empty: ReactNode;
}) {
  const [chosen, setChosen] = useState<Record<string, string>>({});
  const [text, setText] = useState("");
  const [cursors, setCursors] = useState<string[]>([]);
  const asked = new URLSearchParams({ limit: "50" });
  for (const [name, value] of Object.entries({ ...chosen, q: text.trim(), cursor: cursors.at(-1) ?? "" })) {
    if (value !== "") asked.set(name, value);
  }
  const answer = useAnswer<Pages<Row>>(`${path}?${asked}`, { version });
  const filtered = asked.size > 1;
  const choose = (name: string, value: string) => {
    setChosen((before) => ({ ...before, [name]: value }));
    setCursors([]);
  };
  return (
    <>
      {(choices.length > 0 || search) && (
        <div className="filters">
          {choices.map((choice) => (
            <Chooser key={choice.name} choice={choice} value={chosen[choice.name] ?? ""} onChoose={choose} />
          ))}
          {search && (
            <SearchBox
              label={search}
              onSearch={(words) => {
                setText(words);
                setCursors([]);
              }}
            />
          )}
        </div>
      )}
      <Shown of={answer}>
        {({ rows, total, cursor }) =>
          rows.length === 0 ? (
            filtered ? (
              <Empty title="Nothing fits these filters" />
            ) : (
              empty
            )
          ) : (
            <>
              <Table label={label} columns={columns} rows={rows} keyOf={keyOf} />
              <div className="foot">
                <span className="soft small number" role="status">
                  {total > rows.length
                    ? `${count(cursors.length * 50 + 1)} to ${count(cursors.length * 50 + rows.length)} of ${count(total)}`
                    : `${count(total)} in all`}
                </span>
                {total > rows.length && (
                  <span className="acts">
                    <button
                      type="button"
                      className="button"
                      disabled={cursors.length === 0}
                      onClick={() => setCursors(cursors.slice(0, -1))}
                    >
                      Back
                    </button>
                    <button
                      type="button"
                      className="button"
                      disabled={cursor === null}
                      onClick={() => setCursors([...cursors, cursor!])}
                    >
                      Further
                    </button>
                  </span>
                )}
              </div>
            </>
          )
        }
      </Shown>
    </>
  );
}

function Chooser({
  choice: { name, label, options },
  value,
  onChoose,
}: {
  choice: Choice;
  value: string;
  onChoose: (name: string, value: string) => void;
}) {
  const id = useId();
  return (
    <div className="field">
      <label htmlFor={id}>{label}</label>
      <select id={id} className="input" value={value} onChange={(event) => onChoose(name, event.target.value)}>
        {options.map(([one, words]) => (
          <option key={one} value={one}>
            {words}
          </option>
        ))}
      </select>
    </div>
  );
}

/** Asks when nobody has typed for a moment. */
function SearchBox({ label, onSearch }: { label: string; onSearch: (words: string) => void }) {
  const id = useId();
  const [words, setWords] = useState<string>();
  useEffect(() => {
    if (words === undefined) return;
    const timer = setTimeout(() => onSearch(words), 250);
    return () => clearTimeout(timer);
  }, [words]);
  return (
    <div className="field">
      <label htmlFor={id}>{label}</label>
      <input
        id={id}
        className="input"
        type="search"
        maxLength={200}
        value={words ?? ""}
        onChange={(event) => setWords(event.target.value)}
      />
    </div>
  );
}
