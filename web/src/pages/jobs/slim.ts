// A job as a row of a list: without its input and output, because a hundred thousand of them would be much.
import type { nouns } from "../../api/nouns.ts";

export type Row = Omit<nouns.Job, "input" | "output">;

/** The same job makes the same row, so that a row is drawn again only when its job has changed. */
const slimmed = new WeakMap<nouns.Job, Row>();

export function slim(job: nouns.Job): Row {
  const known = slimmed.get(job);
  if (known) return known;
  const { input: _input, output: _output, ...row } = job;
  slimmed.set(job, row);
  return row;
}
