// Mutants of sql/functions/live/webhooks.sql.
export const file = "sql/functions/live/webhooks.sql";
export const killedBy = "test/webhooks/webhooks.test.ts";

export const mutants = [
  {
    name: "only completed jobs create webhooks",
    only: "its webhook",
    old: "    where e.state = any (n.states) and coalesce",
    new: "    where e.state = any (n.states) and e.state = 'completed' and coalesce",
  },
  {
    name: "a caller that joins a job gets no webhook",
    only: "joins",
    old: "update stillwake.live_jobs j set webhooks = coalesce(j.webhooks, '[]') || jsonb_build_array(new.webhook)",
    new: "update stillwake.live_jobs j set webhooks = coalesce(j.webhooks, '[]')",
  },
  {
    name: "a caller that joins a job which ends before the caller's commit gets no webhook",
    only: "stays open",
    old: "    perform stillwake.add_webhooks(array[new.job_id], jsonb_build_array(new.webhook));",
    new: "    null;",
  },
  {
    name: "a caller that joins a job locks it until commit",
    only: "stays open",
    old: "  insert into stillwake.webhook_joins (job_id, webhook) select distinct",
    new: `  perform from stillwake.live_jobs j where j.id = any (p_jobs) for update;
  insert into stillwake.webhook_joins (job_id, webhook) select distinct`,
  },
  {
    name: "webhooks of a disabled endpoint are sent to its old URL after it moved",
    only: "new URL",
    old: "select distinct n.name, nullif(a.url, n.url) as url, n.body",
    new: "select distinct n.name, coalesce(a.url, n.url) as url, n.body",
  },
  {
    name: "a success clears Retry-After",
    only: "sends Retry-After",
    old: "where l.name = v_one.name and (l.until is null or l.until <= v_now);",
    new: "where l.name = v_one.name;",
  },
  {
    name: "the newest secret by clock time is the current one",
    only: "distinguished",
    old: "where s.endpoint = p_name order by s.expires_at desc nulls first limit 1;",
    new: "where s.endpoint = p_name order by s.created_at desc limit 1;",
  },
  {
    name: "the headers of an endpoint are sent to any URL that a job names",
    only: "to other hosts",
    old: "<> substring(v_endpoint.url from '^[^/]+//[^/?#]+') then",
    new: "<> substring(v_endpoint.url from '^[^/]+//[^/?#]+') and false then",
  },
  {
    name: "any sender may record a delivery",
    only: "fenced",
    old: "and w.epoch = v_one.epoch and w.sender = v_one.sender for update;",
    new: "and w.state = 'pending' for update;",
  },
  {
    name: "a delivery record is fenced by the sender's name alone",
    only: "fenced",
    old: "and w.epoch = v_one.epoch and w.sender = v_one.sender for update;",
    new: "and w.sender = v_one.sender for update;",
  },
  {
    name: "webhooks claimed by a dead sender are never sent again",
    only: "fenced",
    old: "attempts = w.attempts + 1, next_at = v_now + p_span",
    new: "attempts = w.attempts + 1, next_at = 'infinity'",
  },
  {
    name: "retries of a delivery have a constant interval",
    only: "one of ten",
    old: "[least(greatest(p_attempt, 1), 9)]",
    new: "[1]",
  },
  {
    name: "deliveries are retried without end",
    only: "one of ten",
    old: "      when v_hook.attempts >= stillwake.max_deliveries() then 'failed' else 'pending' end;",
    new: "      else 'pending' end;",
  },
  {
    name: "a thin body contains user data",
    only: "is thin by default",
    old: "'attempt', p_job.attempt, 'code', substring(",
    new: "'attempt', p_job.attempt, 'output', p_job.output, 'code', substring(",
  },
  {
    name: "the failure in a body contains its stack",
    only: "never the stack",
    old: "'step', p_job.failure -> 'step')), '{}')",
    new: "'step', p_job.failure -> 'step', 'stack', p_job.failure -> 'stack')), '{}')",
  },
  {
    name: "omitted fields of a body are not listed",
    only: "omitted",
    old: "if v_out <> '{}' and jsonb_typeof(v_filled) = 'object' then",
    new: "if false then",
  },
  {
    name: "two endpoints may share a secret",
    only: "no other endpoint has",
    old: "  if v_owner is distinct from p_endpoint then",
    new: "  if false then",
  },
  {
    name: "the previous secret no longer signs",
    only: "is signed with both",
    old: "nulls first limit 2);",
    new: "nulls first limit 1);",
  },
  {
    name: "an expired secret still signs",
    only: "is signed with both",
    old: `where s.endpoint = w.endpoint and (s.expires_at is null or s.expires_at > v_now)
          order by`,
    new: "where s.endpoint = w.endpoint order by",
  },
  {
    name: "a disabled endpoint still receives webhooks",
    only: "holds back",
    old: "continue when v_endpoint.disabled_at is not null or v_next.url",
    new: "continue when v_next.url",
  },
  {
    name: "failed webhooks are pruned together with delivered ones",
    only: "are deleted",
    old: "and (w.state = 'delivered' or w.ended_at < v_now - interval '30 days')",
    new: "",
  },
  {
    name: "a response with status 410 does not disable the endpoint",
    killedBy: "test/webhooks/receivers.test.ts",
    only: "410",
    old: `        v_gone := v_gone || v_hook.endpoint;
`,
    new: "",
  },
  {
    name: "Retry-After is ignored",
    killedBy: "test/webhooks/receivers.test.ts",
    only: "is given that time",
    old: "v_now + greatest(stillwake.webhook_pause(v_hook.attempts), v_retry)",
    new: "v_now + stillwake.webhook_pause(v_hook.attempts)",
  },
  {
    name: "Retry-After applies to one webhook only",
    killedBy: "test/webhooks/receivers.test.ts",
    only: "no other webhook of its lane",
    old: "continue when v_lane.until > v_now or v_failing and v_slow <= 0;",
    new: "continue when v_failing and v_slow <= 0;",
  },
  {
    name: "a webhook lane has no concurrency limit",
    killedBy: "test/webhooks/receivers.test.ts",
    only: "one at a time",
    old: "case when v_failing then 1 else 10 end",
    new: "case when v_failing then 1 else 1000 end",
  },
  {
    name: "a failing webhook lane keeps its concurrency",
    killedBy: "test/webhooks/receivers.test.ts",
    only: "one at a time",
    old: "v_failing := coalesce(v_lane.failures >= 5, false);",
    new: "v_failing := false;",
  },
  {
    name: "failing receivers may take all sender slots",
    killedBy: "test/webhooks/receivers.test.ts",
    only: "half of the slots",
    old: "continue when v_lane.until > v_now or v_failing and v_slow <= 0;",
    new: "continue when v_lane.until > v_now;",
  },
  {
    name: "every webhook claim starts at the first lane",
    killedBy: "test/webhooks/receivers.test.ts",
    only: "alternate between lanes",
    old: "v_at       text := coalesce(p_after, '');",
    new: "v_at       text := '';",
  },
  {
    name: "concurrent webhook claims count the same free sender slots",
    killedBy: "test/webhooks/receivers.test.ts",
    only: "ten concurrent deliveries",
    old: `  perform pg_advisory_xact_lock(hashtextextended('stillwake.webhooks', 0));
`,
    new: "",
  },
];
