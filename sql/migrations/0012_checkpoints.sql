-- The value of a list of items, stored with the position; see save_position(). Two versions of that function would make
-- calls with eight arguments ambiguous.
alter table stillwake.checkpoints add column value jsonb;
-- True for the record that an optional step failed: readers of steps, who may not read outputs, leave it out.
alter table stillwake.checkpoints add column failed boolean;
drop function if exists stillwake.save_position(uuid, bigint, uuid, text, bigint, bigint, jsonb, boolean);
