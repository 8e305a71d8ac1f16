-- The sentence for a job that fails while none of its code runs: its machine was lost, or its time ran out, too often.
-- "{attempts}" is replaced by the number.
alter table stillwake.pipelines
  add column exhausted text check (length(exhausted) between 1 and 300);
