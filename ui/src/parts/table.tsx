// A table with columns of fixed width. On a phone each row becomes a list of labelled values.
import { Fragment, type ReactNode } from "react";

export interface Column<Row> {
  /** Above the column; on a phone beside each of its values. */
  head: string;
  /** A CSS width. Columns without one share the rest. */
  width?: string;
  number?: true;
  /** The head is for screen readers only. */
  hideHead?: true;
  cell: (row: Row) => ReactNode;
}

export function Table<Row>({
  label,
  columns,
  rows,
  keyOf,
  details,
}: {
  label: string;
  columns: readonly Column<Row>[];
  rows: readonly Row[];
  keyOf: (row: Row) => string;
  /** Below a row, across all columns. */
  details?: (row: Row) => ReactNode;
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
          {columns.map(({ head, number, hideHead }) => (
            <th key={head} scope="col" className={number && "number"}>
              {hideHead ? <span className="hidden">{head}</span> : head}
            </th>
          ))}
        </tr>
      </thead>
      <tbody>
        {rows.map((row) => {
          const more = details?.(row);
          return (
            <Fragment key={keyOf(row)}>
              <tr data-open={more ? true : undefined}>
                {columns.map(({ head, number, hideHead, cell }, index) => {
                  const Cell = index === 0 ? "th" : "td";
                  return (
                    <Cell
                      key={head}
                      scope={index === 0 ? "row" : undefined}
                      className={number && "number"}
                      data-label={hideHead || index === 0 ? undefined : head}
                    >
                      {cell(row)}
                    </Cell>
                  );
                })}
              </tr>
              {more && (
                <tr className="details">
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
