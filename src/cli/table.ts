// Tables for people: aligned columns, one line for each row, never wider than the terminal.
import { cutTo, inLine, widthOf } from "./inert.ts";
import type { Colour, Screen } from "./screen.ts";

export interface Column<Row> {
  title: string;
  of(row: Row): string | number | null | undefined;
  /** Numbers stand at the right. */
  right?: boolean;
  colour?(row: Row): Colour | undefined;
  /** It is cut before the others where there is no room for all; the last such first. */
  elastic?: boolean;
  /** Never wider, not even where there is room. */
  most?: number;
}

/** Prints nothing but `none` when there are no rows. */
export function printTable<Row>(screen: Screen, rows: readonly Row[], columns: readonly Column<Row>[], none: string) {
  if (rows.length === 0) return screen.say(none);
  // A column that says nothing is left out.
  const cells = columns
    .map((column) => ({ column, texts: rows.map((row) => cutTo(cell(column.of(row)), column.most ?? 1000)) }))
    .filter(({ texts }, place) => place === 0 || texts.some((text) => text !== ""));
  const widths = cells.map(({ column, texts }) => Math.max(...[column.title, ...texts].map(widthOf)));
  if (screen.columns !== undefined)
    fit(
      widths,
      cells.map(({ column }) => column),
      screen.columns,
    );
  const line = (texts: string[], paint: (text: string, place: number) => string) =>
    cells
      .map(({ column }, place) => {
        const text = cutTo(texts[place]!, widths[place]!);
        const room = " ".repeat(widths[place]! - widthOf(text));
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
    const room = screen.columns === undefined ? Number.POSITIVE_INFINITY : screen.columns - width - 2;
    screen.print(`${screen.paint(name.padEnd(width), "dim")}  ${screen.paint(cutTo(text, room), colour)}`);
  }
}

function cell(value: unknown): string {
  if (value === null || value === undefined) return "";
  return inLine(typeof value === "string" ? value : typeof value === "number" ? String(value) : JSON.stringify(value));
}

/** Takes columns away from where there are most of them, first from those that bear it. */
function fit(widths: number[], columns: readonly Column<never>[], most: number): void {
  const least = (place: number) => Math.min(widths[place]!, Math.max(4, widthOf(columns[place]!.title)));
  let over = widths.reduce((sum, width) => sum + width + 2, -2) - most;
  for (const elastic of [true, false]) {
    const places = columns.map((_, place) => place).filter((place) => Boolean(columns[place]!.elastic) === elastic);
    while (over > 0) {
      const widest = places.filter((place) => widths[place]! > least(place)).sort((a, b) => widths[b]! - widths[a]!)[0];
      if (widest === undefined) break;
      widths[widest]! -= 1;
      over -= 1;
    }
  }
}
