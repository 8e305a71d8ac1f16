// Rows of one kind. Columns keep their width whatever comes into them; on a phone every row becomes a list of its own.
import { Fragment, type ReactNode } from "react";
import "../look/table.css";

export interface Column<Row> {
  /** Above the column; on a phone beside each of its values. */
  head: string;
  /** As CSS has it. Those without share what is left. */
  width?: string;
  number?: true;
  /** Its head is for screen readers alone: what is in it speaks for itself. */
  quiet?: true;
  cell: (row: Row) => ReactNode;
}

export function Table<Row>({
  label,
  columns,
  rows,
  keyOf,
  below,
}: {
  label: string;
  columns: readonly Column<Row>[];
  rows: readonly Row[];
  keyOf: (row: Row) => string;
  /** Beneath a row and as wide as the table, where there is something to say. */
  below?: (row: Row) => ReactNode;
}) {
  return (
    <table className="table rows" aria-label={label}>
      <colgroup>
        {columns.map(({ head, width }) => (
          <col key={head} style={{ width }} />
        ))}
      </colgroup>
      <thead>
        <tr>
          {columns.map(({ head, number, quiet }) => (
            <th key={head} scope="col" className={number && "number"}>
              {quiet ? <span className="hidden">{head}</span> : head}
            </th>
          ))}
        </tr>
      </thead>
      <tbody>
        {rows.map((row) => {
          const more = below?.(row);
          return (
            <Fragment key={keyOf(row)}>
              <tr data-open={more ? true : undefined}>
                {columns.map(({ head, number, quiet, cell }, place) => {
                  const Cell = place === 0 ? "th" : "td";
                  return (
                    <Cell
                      key={head}
                      scope={place === 0 ? "row" : undefined}
                      className={number && "number"}
                      data-label={quiet || place === 0 ? undefined : head}
                    >
                      {cell(row)}
                    </Cell>
                  );
                })}
              </tr>
              {more && (
                <tr className="below">
                  <td colSpan={columns.length}>{more}</td>
                </tr>
              )}
            </Fragment>
          );
        })}
      </tbody>
    </table>
  );
}
