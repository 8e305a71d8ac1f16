// Tables for people: aligned columns, one line for each row, as wide as the terminal at most. Only columns of free text are cut; what somebody may
// want to copy, such as an id, is there whole or not at all. In a pipe nothing is cut.
import { cutTo, inLine, widthOf } from "./escape.ts";
import type { Colour, Screen } from "./screen.ts";

export interface Column<Row> {
  title: string;
  of(row: Row): string | number | null | undefined;
  /** Numbers stand at the right. */
  right?: boolean;
  colour?(row: Row): Colour | undefined;
  /** It may be cut where there is no room for all. */
  elastic?: boolean;
  /** The last such is left out first where cutting does not make room enough. */
  spare?: boolean;
  /** Never wider on a terminal, not even where there is room. */
  most?: number;
}

/** Prints nothing but `none` when there are no rows. */
export function printTable<Row>(screen: Screen, rows: readonly Row[], columns: readonly Column<Row>[], none: string) {
  if (rows.length === 0) return screen.say(none);
  // A column that says nothing is left out.
  const said = columns
    .map((column) => ({ column, texts: rows.map((row) => cell(column.of(row))) }))
    .filter(({ texts }, place) => place === 0 || texts.some((text) => text !== ""));
  const cells = fit(
    said.map(({ column, texts }) => {
      const width = texts.reduce((most, text) => Math.max(most, widthOf(text)), widthOf(column.title));
      const most = screen.columns === undefined ? undefined : column.most;
      return { column, texts, width: Math.min(width, most ?? width) };
    }),
    screen.columns ?? Number.POSITIVE_INFINITY,
  );
  const line = (texts: string[], paint: (text: string, place: number) => string) =>
    cells
      .map(({ column, width }, place) => {
        const text = cutTo(texts[place]!, width);
        const room = " ".repeat(width - widthOf(text));
        const last = place === cells.length - 1;
        return column.right ? room + paint(text, place) : paint(text, place) + (last ? "" : room);
      })
      .join("  ")
      .trimEnd();
  screen.print(
    line(
      cells.map(({ column }) => column.title),
      (text) => screen.paint(text, "dim"),
    ),
  );
  for (const [index, row] of rows.entries()) {
    const texts = cells.map(({ texts: all }) => all[index]!);
    screen.print(line(texts, (text, place) => screen.paint(text, cells[place]!.column.colour?.(row))));
  }
}

/** Names and what they stand for, one below the other. What is absent is left out. */
export function printFacts(
  screen: Screen,
  facts: readonly (readonly [name: string, value: unknown, colour?: Colour | undefined])[],
) {
  const shown = facts.map(([name, value, colour]) => ({ name, text: cell(value), colour })).filter(({ text }) => text);
  const width = Math.max(...shown.map(({ name }) => name.length));
  for (const { name, text, colour } of shown) {
    const room =
      screen.columns === undefined ? Number.POSITIVE_INFINITY : Math.max(MIN_FACT, screen.columns - width - 2);
    screen.print(`${screen.paint(name.padEnd(width), "dim")}  ${screen.paint(cutTo(text, room), colour)}`);
  }
}

function cell(value: unknown): string {
  if (value === null || value === undefined) return "";
  return inLine(typeof value === "string" ? value : typeof value === "number" ? String(value) : JSON.stringify(value));
}

/** An id is shown whole, whatever the terminal. */
const MIN_FACT = 36;
/** A text that is cut further says nothing. */
const MIN_TEXT = 10;

interface Fitted {
  column: { title: string; elastic?: boolean; spare?: boolean };
  width: number;
}

/** Cuts the widest of what may be cut; when that is not enough, leaves a column out and begins again. The first one always stays. */
function fit<Cell extends Fitted>(cells: readonly Cell[], most: number): Cell[] {
  const fitted = cells.map((one) => ({ ...one }));
  const least = ({ column, width }: Fitted) => Math.min(width, Math.max(MIN_TEXT, widthOf(column.title)));
  let over = cells.reduce((sum, { width }) => sum + width + 2, -2) - most;
  while (over > 0) {
    const soft = fitted.filter((one) => one.column.elastic && one.width > least(one));
    if (soft.length === 0) break;
    soft.reduce((widest, one) => (one.width > widest.width ? one : widest)).width -= 1;
    over -= 1;
  }
  if (over <= 0 || cells.length === 1) return fitted;
  const spare = cells.findLastIndex(({ column }, place) => place > 0 && column.spare);
  const left = spare > 0 ? spare : cells.length - 1;
  return fit(
    cells.filter((_, place) => place !== left),
    most,
  );
}
