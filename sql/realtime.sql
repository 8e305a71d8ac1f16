-- Publishes the feed of a tenant's jobs through Supabase Realtime to users of that tenant. Applied by
-- `stillwake migrate --realtime`, after everything else; safe to run again. src/db/realtime.ts inserts the names of the
-- publication and of the token claim.
--
-- `authenticated` can read the copy of the feed and nothing else: no jobs, no functions. `anon` can read nothing.

do $realtime$
begin
  if to_regrole('authenticated') is null then
    raise exception 'The role "authenticated" does not exist: this is not the database of a Supabase project'
    using hint = 'Leave --realtime out, or create the role: create role authenticated nologin.';
  end if;
  if current_setting('wal_level') <> 'logical' then
    raise warning 'wal_level is %: nothing is published until it is logical', current_setting('wal_level');
  end if;
  if not exists (select from pg_publication p where p.pubname = ':publication') then
    create publication ":publication" for table stillwake.realtime_feed with (publish = 'insert');
  elsif not exists (select from pg_publication_tables t
    where t.pubname = ':publication' and t.schemaname = 'stillwake' and t.tablename = 'realtime_feed') then
    alter publication ":publication" add table stillwake.realtime_feed;
  end if;
end
$realtime$;

create or replace trigger mirror_feed after insert on stillwake.feed referencing new table
  as new_lines for each statement execute function stillwake.mirror_feed();

drop policy if exists realtime on stillwake.realtime_feed;
create policy realtime on stillwake.realtime_feed for select to authenticated
using (tenant = (nullif(current_setting('request.jwt.claims', true), '')::jsonb #>> ':claim'));

grant usage on schema stillwake to authenticated;
grant select on stillwake.realtime_feed to authenticated;
