// Tables for people: aligned columns, one line per row, at most as wide as the terminal. Only columns of free text are
// truncated; a value that may be copied, such as an id, is shown whole or not at all. In a pipe nothing is truncated.
import { escapeLine } from "../../text/escape.ts";
import type { Colour, Screen } from "./screen.ts";

export interface Column<Row> {
  title: string;
  value(row: Row): string | number | null | undefined;
  /** Aligned to the right, for numbers. */
  right?: boolean;
  colour?(row: Row): Colour | undefined;
  /** May be truncated when the table is too wide. */
  elastic?: boolean;
  /** Dropped, the last one first, when truncation is not enough. */
  optional?: boolean;
  /** Maximum width on a terminal. */
  maxWidth?: number;
}

/** Prints `emptyText` on stderr when there are no rows. A column that is empty in every row is left out. */
export function printTable<Row>(
  screen: Screen,
  rows: readonly Row[],
  columns: readonly Column<Row>[],
  emptyText: string,
): void {
  if (rows.length === 0) {
    screen.printStderr(emptyText);
    return;
  }
  const filled = columns
    .map((column) => ({ column, texts: rows.map((row) => toCell(column.value(row))) }))
    .filter(({ texts }, index) => index === 0 || texts.some((text) => text !== ""));
  const cells = fitColumns(
    filled.map(({ column, texts }) => {
      const width = texts.reduce((max, text) => Math.max(max, displayWidth(text)), displayWidth(column.title));
      const maxWidth = screen.columns === undefined ? undefined : column.maxWidth;
      return { column, texts, width: Math.min(width, maxWidth ?? width) };
    }),
    screen.columns ?? Number.POSITIVE_INFINITY,
  );
  const formatRow = (texts: string[], paint: (text: string, index: number) => string) =>
    cells
      .map(({ column, width }, index) => {
        const text = truncate(texts[index]!, width);
        const padding = " ".repeat(width - displayWidth(text));
        const isLast = index === cells.length - 1;
        return column.right ? padding + paint(text, index) : paint(text, index) + (isLast ? "" : padding);
      })
      .join("  ")
      .trimEnd();
  screen.print(
    formatRow(
      cells.map(({ column }) => column.title),
      (text) => screen.paint(text, "dim"),
    ),
  );
  for (const [rowIndex, row] of rows.entries()) {
    const texts = cells.map((cell) => cell.texts[rowIndex]!);
    screen.print(formatRow(texts, (text, index) => screen.paint(text, cells[index]!.column.colour?.(row))));
  }
}

/** Prints names and values, one pair per line. Empty values are left out. */
export function printFacts(
  screen: Screen,
  facts: readonly (readonly [name: string, value: unknown, colour?: Colour | undefined])[],
): void {
  const shown = facts
    .map(([name, value, colour]) => ({ name, text: toCell(value), colour }))
    .filter(({ text }) => text);
  const width = Math.max(...shown.map(({ name }) => name.length));
  const maxWidth =
    screen.columns === undefined ? Number.POSITIVE_INFINITY : Math.max(MIN_FACT_WIDTH, screen.columns - width - 2);
  for (const { name, text, colour } of shown)
    screen.print(`${screen.paint(name.padEnd(width), "dim")}  ${screen.paint(truncate(text, maxWidth), colour)}`);
}

function toCell(value: unknown): string {
  if (value === null || value === undefined) return "";
  return escapeLine(
    typeof value === "string" ? value : typeof value === "number" ? String(value) : JSON.stringify(value),
  );
}

/** An id is 36 characters and is shown whole on any terminal. */
const MIN_FACT_WIDTH = 36;
/** A shorter text is useless. */
const MIN_TEXT_WIDTH = 10;

interface Cell {
  column: { title: string; elastic?: boolean; optional?: boolean };
  width: number;
}

/** Shrinks the widest elastic column; if that is not enough, drops a column and starts again. The first column stays. */
function fitColumns<C extends Cell>(cells: readonly C[], maxWidth: number): C[] {
  const fitted = cells.map((cell) => ({ ...cell }));
  const minWidth = ({ column, width }: Cell) => Math.min(width, Math.max(MIN_TEXT_WIDTH, displayWidth(column.title)));
  let excess = cells.reduce((sum, { width }) => sum + width + 2, -2) - maxWidth;
  while (excess > 0) {
    const shrinkable = fitted.filter((cell) => cell.column.elastic && cell.width > minWidth(cell));
    if (shrinkable.length === 0) break;
    shrinkable.reduce((widest, cell) => (cell.width > widest.width ? cell : widest)).width -= 1;
    excess -= 1;
  }
  if (excess <= 0 || cells.length === 1) return fitted;
  const optional = cells.findLastIndex(({ column }, index) => index > 0 && column.optional);
  const dropped = optional > 0 ? optional : cells.length - 1;
  return fitColumns(
    cells.filter((_, index) => index !== dropped),
    maxWidth,
  );
}

/** The number of terminal columns a text occupies. */
export function displayWidth(text: string): number {
  if (/^[ -~]*$/.test(text)) return text.length;
  let width = 0;
  for (const { segment } of segmenter().segment(text))
    width += WIDE.test(segment) ? 2 : COMBINING.test(segment) ? 0 : 1;
  return width;
}

/** Cuts a text to a number of terminal columns, with "…" at the end. */
export function truncate(text: string, columns: number): string {
  if (displayWidth(text) <= columns) return text;
  let kept = "";
  let width = 0;
  for (const { segment } of segmenter().segment(text)) {
    width += displayWidth(segment);
    if (width > columns - 1) break;
    kept += segment;
  }
  return columns > 0 ? `${kept}…` : "";
}

// Created on first use: it takes longer than the rest of this module.
let graphemes: Intl.Segmenter | undefined;
const segmenter = () => (graphemes ??= new Intl.Segmenter("en", { granularity: "grapheme" }));
const WIDE =
  /^(\p{Emoji_Presentation}|\p{Extended_Pictographic}\ufe0f|\p{Regional_Indicator}{2}|[\u1100-\u115f\u2e80-\u303e\u3041-\ua4cf\uac00-\ud7a3\uf900-\ufaff\ufe30-\ufe6f\uff00-\uff60\uffe0-\uffe6]|[\u{20000}-\u{3fffd}])/u;
const COMBINING = /^\p{M}/u;
