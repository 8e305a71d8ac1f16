-- What is said of a job that ends while none of its code runs: its machine was lost, or its time ran out, too often. "{attempts}" stands for how often.
alter table stillwake.pipelines
  add column exhausted text check (length(exhausted) between 1 and 300);
