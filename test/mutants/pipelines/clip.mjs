// Mutants of pipelines/clip: its tables, and the code that its tests run without a build.
export const file = "pipelines/clip/tables.sql";
export const killedBy = "pipelines/clip/test/api.test.ts";

export const mutants = [
  {
    name: "the upload of an active clip is deleted",
    old: `
        and not exists (
          select from clip.clips c where c.source ->> 'upload' = u.id::text and (c.state in ('queued', 'running') or c.recorded_at is null))`,
    new: "",
  },
  {
    name: "uploads are deleted although they were used today",
    old: "not u.permanent and u.used_at < now() - interval '1 day'",
    new: "not u.permanent",
  },
  {
    name: "the failure of a clip is not recorded",
    old: "state = case n.state when 'completed' then 'ready' when 'failed' then 'failed' when 'cancelled' then 'cancelled'",
    new: "state = case n.state when 'completed' then 'ready' when 'failed' then 'ready' when 'cancelled' then 'cancelled'",
  },
  {
    name: "equal requests at once make several clips",
    file: "pipelines/clip/src/clips.ts",
    old: "pg_advisory_xact_lock(hashtextextended($1, 0))",
    new: "$1::text",
  },
  {
    name: "a broken download begins again instead of resuming",
    file: "pipelines/kit/src/http/download.ts",
    killedBy: "pipelines/kit/test/download.test.ts",
    old: "(resuming && { range:",
    new: "(resuming && { ranged:",
  },
];
