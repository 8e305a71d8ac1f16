// Rows of one kind. Columns keep their width whatever comes into them; on a phone every row becomes a list of its own.
import type { ReactNode } from "react";

export interface Column<Row> {
  /** Above the column; on a phone beside each of its values. */
  head: string;
  /** As CSS has it. Those without share what is left. */
  width?: string;
  number?: true;
  cell: (row: Row) => ReactNode;
}

export function Table<Row>({
  label,
  columns,
  rows,
  keyOf,
}: {
  label: string;
  columns: readonly Column<Row>[];
  rows: readonly Row[];
  keyOf: (row: Row) => string;
}) {
  return (
    <table className="table" aria-label={label}>
      <colgroup>
        {columns.map(({ head, width }) => (
          <col key={head} style={{ width }} />
        ))}
      </colgroup>
      <thead>
        <tr>
          {columns.map(({ head, number }) => (
            <th key={head} scope="col" className={number && "number"}>
              {head}
            </th>
          ))}
        </tr>
      </thead>
      <tbody>
        {rows.map((row) => (
          <tr key={keyOf(row)}>
            {columns.map(({ head, number, cell }, place) => {
              const Cell = place === 0 ? "th" : "td";
              return (
                <Cell
                  key={head}
                  scope={place === 0 ? "row" : undefined}
                  className={number && "number"}
                  data-label={place === 0 ? undefined : head}
                >
                  {cell(row)}
                </Cell>
              );
            })}
          </tr>
        ))}
      </tbody>
    </table>
  );
}
