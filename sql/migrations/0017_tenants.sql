-- What one tenant can do to another, or to the installation: endpoints belong to a tenant and name the origins that get
-- their headers.

alter table stillwake.endpoints
  -- Origins that the URL of a job may have, besides that of the endpoint's own URL. Headers are sent to these only.
  add column origins text[] not null default '{}',
  -- Only jobs of this tenant use it, and callers bound to a tenant use no others; null for the whole installation.
  add column tenant text check (length(tenant) between 1 and 500);
alter table stillwake.endpoints enable row level security;
