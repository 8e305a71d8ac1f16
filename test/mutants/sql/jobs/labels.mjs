// Mutants of sql/functions/jobs/labels.sql.
export const file = "sql/functions/jobs/labels.sql";
export const killedBy = "test/enqueue/labels.test.ts";

export const mutants = [
  {
    name: "two inputs with different fields have the same key",
    only: "the texts of labels",
    old: String.raw`replace(replace(v.part, '\', '\\'), '/', '\/')`,
    new: "v.part",
  },
  {
    name: "the key of a number depends on how it is written",
    only: "the texts of labels",
    old: "trim_scale(p_value::numeric)::text",
    new: "p_value #>> '{}'",
  },
  {
    name: "a sealed field becomes the key of a job",
    only: "cannot be sealed",
    old: "bool_and(a.name = b.name or b.name = '*')",
    new: "bool_and(false)",
  },
];
