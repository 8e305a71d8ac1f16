// Mutants of sql/functions/live/watch.sql.
export const file = "sql/functions/live/watch.sql";

export const mutants = [
  {
    name: "a page of the feed starts with the last known line",
    killedBy: "test/live/follow.test.ts",
    only: "that is behind the buffer",
    old: "o.seq > a.after order",
    new: "o.seq >= a.after order",
  },
  {
    name: "hints continue for watchers that have died",
    killedBy: "test/live/live.test.ts",
    only: "for a dead watcher",
    old: " and w.until > v_now limit 1",
    new: " limit 1",
  },
];
