-- The paths of an input whose values are the key and the tenant of a job; null for none. See functions/jobs/labels.sql.
alter table stillwake.pipelines
  add column key_paths text[],
  add column tenant_paths text[];
