// Mutants of sql/functions/flow/cron.sql.
export const file = "sql/functions/flow/cron.sql";
export const killedBy = "test/flow/schedules.test.ts";

export const mutants = [
  {
    name: "a local time that occurs twice fires the second time",
    only: "has 02:00 to 03:00 twice",
    old: "if v_past < v_at and (v_past at",
    new: "if v_past is null and (v_past at",
  },
  {
    name: "a skipped local time is resolved by Postgres",
    only: "Berlin skips",
    old: "  v_low := extract(epoch from v_at)::bigint - 93600;",
    new: "  return v_at;",
  },
  {
    name: "a clock change of more than one hour is ignored",
    only: "Troll goes back",
    old: "array[interval '3 hours', interval '25 hours']",
    new: "array[interval '1 hour']",
  },
  {
    name: "an interval is treated as a time of day",
    only: "an interval",
    old: "if cardinality(p_cron.hours) < 24 then",
    new: "if cardinality(p_cron.hours) <= 24 then",
  },
  {
    name: "a clock change across midnight is ignored",
    only: "over midnight",
    old: `case when (v_then at time zone p_zone) = v_local + interval '3 hours'
        then`,
    new: "case when true then",
  },
  {
    name: "a clock change between two interval times is ignored",
    killedBy: "test/flow/schedules-dst.test.ts",
    only: "for intervals",
    old: "if (v_then at time zone p_zone) <> v_local + (v_next - v_minute) * interval '1 minute' then",
    new: "if (v_then at time zone p_zone) is null then",
  },
  {
    name: "both day fields must match",
    only: "0 0 13",
    old: "v_cron.either := v_parts[3] not like '*%' and v_parts[5] not like '*%';",
    new: "v_cron.either := false;",
  },
];
