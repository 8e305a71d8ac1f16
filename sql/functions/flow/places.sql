-- How far a job is in a long list of items that it works off in batches: one checkpoint that grows. Its output says which items are done, as ranges of their
-- numbers (several when batches run side by side), and what the caller wants to know of the last one before the first gap, to find it again.

-- Items p_from up to p_to, p_to not included, are done; with p_over there are no more. p_last: what finds the last of them again. Inside the user's own
-- transaction the batch's rows and its place commit together. Answers 'saved', or 'kept' when these items were done before: then this batch must not count, so
-- roll back. Locks: the lease, the checkpoint. Raises SW001, SW005.
create or replace function stillwake.save_place(
  p_job uuid, p_epoch bigint, p_lease uuid, p_step text, p_from bigint, p_to bigint, p_last jsonb default null, p_over boolean default false
) returns text
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
  v_now   timestamptz;
  v_place jsonb;
  v_done  int8multirange;
  v_lasts jsonb;
begin
  if coalesce(length(p_step), 0) not between 1 and 200 then
    perform stillwake.refuse('SW001', 'A list of items needs a name of 1 to 200 characters', 'step', 'Use a shorter name.');
  elsif p_from is null or p_to is null or p_from < 0 or p_to < p_from then
    perform stillwake.refuse('SW001', format('Items %s to %s are no batch', p_from, p_to), 'from', 'Count from 0; the end is not included.');
  elsif octet_length(p_last::text) > 16384 then
    perform stillwake.refuse('SW001', 'What finds the last item again is larger than the limit of 16384 bytes', 'cursor', 'Keep an id or a few columns.');
  elsif not stillwake.holds(p_job, p_epoch, p_lease) then
    perform stillwake.refuse_lost(p_job, p_epoch);
  end if;
  v_now := stillwake.now();
  insert into stillwake.checkpoints (job_id, step, epoch, started_at, saved_at, output)
  values (p_job, p_step, p_epoch, v_now, v_now, '{"$stillwake": ["place", {"done": "{}", "lasts": {}}]}') on conflict do nothing;
  select c.output #> '{$stillwake,1}' into v_place from stillwake.checkpoints c where c.job_id = p_job and c.step = p_step and c.output #>> '{$stillwake,0}' = 'place' for update;
  if not found then
    perform stillwake.refuse('SW001', format('Step "%s" of job %s is no list of items', p_step, p_job), 'step', 'Give it a name of its own.');
  end if;
  v_done := (v_place ->> 'done')::int8multirange;
  if (v_place -> 'over')::boolean or p_to > p_from and v_done && int8range(p_from, p_to) then
    return 'kept';
  end if;
  v_done := v_done + int8multirange(int8range(p_from, p_to));
  v_lasts := v_place -> 'lasts' || case when p_last is not null then jsonb_build_object(p_to::text, p_last) else '{}' end;
  -- Only the last of a range can become the last one before the first gap.
  v_lasts := coalesce((select jsonb_object_agg(l.key, l.value) from jsonb_each(v_lasts) l where l.key::bigint in (select upper(r) from unnest(v_done) r)), '{}');
  update stillwake.checkpoints c set epoch = p_epoch, saved_at = v_now,
    output = jsonb_build_object('$stillwake', jsonb_build_array('place', jsonb_build_object('done', v_done::text, 'lasts', v_lasts) || case when p_over then '{"over": true}' else '{}'::jsonb end))
  where c.job_id = p_job and c.step = p_step;
  -- A list is told to followers as a step once it is done.
  if p_over then
    perform stillwake.hint_watchers(array[p_job]);
  end if;
  return 'saved';
end
$$;
