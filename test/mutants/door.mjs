// Mutants of what stands between the engine and the world: tokens, the walls between tenants, the live stream, the lists, the server. In the same
// shape as those of the engine, of which mutants.mjs makes them a part.

const ROWS = "test/security/row-level-security.test.ts";
const ERASURE = "test/security/erase-tenant.test.ts";
const LIVE = "test/live/live.test.ts";
const FOLLOW = "test/live/follow.test.ts";
const STREAM = "test/live/stream.test.ts";
const TOKENS = "test/server/tokens.test.ts";
const LISTS = "test/server/lists.test.ts";
const SERVER = "test/server/server.test.ts";
const GUARDS = "test/server/guards.test.ts";
const ACCESS = "test/server/access.test.ts";
const OTHERS = "test/server/access-others.test.ts";
const TENANTS = "test/server/tenants.test.ts";

const inFile = (file) => (old, text) => ({ file, old, new: text });
const policies = inFile("sql/policies.sql");
const access = inFile("sql/functions/reads/access.sql");
const children = inFile("sql/functions/flow/children.sql");
const claim = inFile("sql/functions/jobs/claim.sql");
const enqueue = inFile("sql/functions/jobs/enqueue.sql");
const eraseTenant = inFile("sql/functions/jobs/erase.sql");
const keys = inFile("sql/functions/jobs/keys.sql");
const settle = inFile("sql/functions/jobs/settle.sql");
const views = inFile("sql/functions/reads/views.sql");
const watch = inFile("sql/functions/live/watch.sql");
const feedReader = inFile("src/live/feed-reader.ts");
const follow = inFile("src/live/follower.ts");
const followedJob = inFile("src/live/job-buffer.ts");
const readToken = inFile("src/client/read-token.ts");
const readVerbs = inFile("src/db/calls/reads.ts");
const scoped = inFile("src/db/tenant-database.ts");
const tokens = inFile("src/client/tokens.ts");
const app = inFile("src/server/app.ts");
const house = inFile("src/server/context.ts");
const identify = inFile("src/server/http/identify.ts");
const jobControl = inFile("src/server/routes/job-control.ts");
const jobs = inFile("src/server/routes/jobs.ts");
const law = inFile("src/server/http/access.ts");
const limits = inFile("src/server/http/rate-limits.ts");
const origin = inFile("src/server/http/origin.ts");
const problem = inFile("src/server/http/problem.ts");
const serverTokens = inFile("src/server/routes/tokens.ts");
const stream = inFile("src/server/stream.ts");

/** @type {{ name: string, killedBy: string, only?: string, edits: { file: string, old: string, new: string }[] }[]} */
export const door = [
  // The second wall.
  {
    name: "door: a tenant sees the jobs of all",
    killedBy: ROWS,
    only: "sees its own rows",
    edits: [policies("'tenant = ' || v_mine from", "'true' from")],
  },
  {
    name: "door: a tenant sees what hangs on the jobs of others",
    killedBy: ROWS,
    only: "sees its own rows",
    edits: [policies("limit 1)) = %2$s'", "limit 1)) = %2$s or true'")],
  },
  {
    name: "door: a read for a tenant does not take its role",
    killedBy: ROWS,
    only: "are those of the whole",
    edits: [scoped("set_config('role', $3, true)", "set_config('application_name', $3, true)")],
  },
  {
    name: "door: what a read for a tenant sets stays on its connection",
    killedBy: ROWS,
    only: "of two tenants on few connections",
    edits: [
      scoped(
        "set_config($1, $2, true), set_config('role', $3, true)",
        "set_config($1, $2, false), set_config('role', $3, false)",
      ),
    ],
  },
  {
    name: "door: the view of jobs reads as its owner",
    killedBy: ROWS,
    only: "sees its own rows",
    edits: [
      views(
        "create or replace view stillwake.jobs with (security_invoker = true) as",
        "create or replace view stillwake.jobs as",
      ),
    ],
  },
  {
    name: "door: the view of logs reads as its owner",
    killedBy: ROWS,
    only: "sees its own rows",
    edits: [
      views(
        "create or replace view stillwake.logs with (security_invoker = true) as",
        "create or replace view stillwake.logs as",
      ),
    ],
  },
  {
    name: "door: the children of others' jobs are counted for a tenant",
    killedBy: ROWS,
    only: "calls five functions",
    edits: [children("and (stillwake.bound_tenant() is null", "and (true or stillwake.bound_tenant() is null")],
  },
  {
    name: "door: a tenant is told what others' work has said of a breaker",
    killedBy: ROWS,
    only: "learns that a breaker is open",
    edits: [views("case when stillwake.bound_tenant() is null then g.reason", "case when true then g.reason")],
  },

  // Erasure.
  {
    name: "door: rows of a tenant go before their objects",
    killedBy: ERASURE,
    edits: [eraseTenant("if objects <> '{}' then", "if false then")],
  },
  {
    name: "door: the webhooks of an erased tenant stay",
    killedBy: ERASURE,
    edits: [eraseTenant("    delete from stillwake.webhooks w where w.job_id = any (v_ids);\n", "")],
  },

  // The live path.
  {
    name: "door: a page of the feed begins with the line that is known",
    killedBy: FOLLOW,
    only: "did not read for long",
    edits: [watch("o.seq > a.after order", "o.seq >= a.after order")],
  },
  {
    name: "door: hints go on for watchers that died",
    killedBy: LIVE,
    only: "whose watcher has died",
    edits: [watch(" and w.until > v_now limit 1", " limit 1")],
  },
  {
    name: "door: who follows is not told of the end",
    killedBy: LIVE,
    only: "name the jobs that somebody watches",
    edits: [settle("  perform stillwake.hint_watchers(v_jobs);\n", "")],
  },
  {
    name: "door: who follows is not told of a claim",
    killedBy: LIVE,
    only: "name the jobs that somebody watches",
    edits: [claim("  perform stillwake.hint_watchers(v_ids);\n", "")],
  },
  {
    name: "door: who lies far behind reads no pages",
    killedBy: FOLLOW,
    only: "did not read for long",
    edits: [follow("if (this.#cursor < job.from && !job.gone)", "if (false as boolean)")],
  },
  {
    name: "door: lines that are gone are passed over in silence",
    killedBy: FOLLOW,
    only: "is told of a gap",
    edits: [
      follow(
        "    if (line.seq > this.#cursor + 1n || this.#beyond !== undefined) events.push(this.#gap(line.seq));\n",
        "",
      ),
    ],
  },
  {
    name: "door: the end is told before the last lines",
    killedBy: FOLLOW,
    only: "of a job that has ended",
    edits: [follow("if (job.end && this.#isAtHead)", "if (job.end)")],
  },
  {
    name: "door: nobody looks again when the connection is back",
    killedBy: LIVE,
    only: "looks once more whenever",
    edits: [feedReader("onReady: () => this.#lookAtAll(true)", "onReady: () => {}")],
  },
  {
    name: "door: the reader goes on when nobody follows",
    killedBy: LIVE,
    only: "there is no statement",
    edits: [feedReader("      this.#shut();\n      this.#jobs.clear();", "      this.#jobs.clear();")],
  },

  // Streams.
  {
    name: "door: a stream begins with what was known of the job before",
    killedBy: STREAM,
    only: "goes on for one who has seen the end",
    edits: [followedJob("const wanted = this.begun + 1;", "const wanted = 1;")],
  },
  {
    name: "door: the id of a line of any job is a place in every stream",
    killedBy: STREAM,
    only: "are refused, and never show",
    edits: [stream("seq === undefined || tail !== tailOf(id)", "seq === undefined")],
  },
  {
    name: "door: a stream goes on for one who may no longer",
    killedBy: STREAM,
    only: "ends when who came in may no longer",
    edits: [stream("if (!(await recheck!())) return undefined;", "await recheck!();")],
  },
  {
    name: "door: a guest is told who did what, and where in the code it failed",
    killedBy: STREAM,
    only: "shows a guest",
    edits: [stream("encode(guest ? forGuest(event) : event)", "encode(event)")],
  },
  {
    name: "door: a guest is sent what was encoded for the house",
    killedBy: STREAM,
    only: "shows a guest",
    edits: [
      stream("const known = job.encoded[guest ? 1 : 0];", "const known = job.encoded[0];"),
      stream("job.encoded[guest ? 1 : 0] = {", "job.encoded[0] = {"),
    ],
  },

  // Tokens.
  {
    name: "door: a revoked token opens",
    killedBy: TOKENS,
    edits: [access("t.hash = p_hash and t.revoked_at is null and (", "t.hash = p_hash and (")],
  },
  {
    name: "door: a token opens after its time",
    killedBy: TOKENS,
    edits: [access(" and (t.expires_at is null or t.expires_at > v_now)", "")],
  },
  {
    name: "door: the database has the token itself",
    killedBy: TOKENS,
    edits: [tokens("prefix: token.slice(0, MARK.length + 4)", "prefix: token")],
  },
  {
    name: "door: a read token opens after its time",
    killedBy: TOKENS,
    edits: [readToken("  if (!(expiresAt.getTime() > Date.now())) return undefined;\n", "")],
  },
  {
    name: "door: a read token that anybody signed opens",
    killedBy: TOKENS,
    edits: [readToken("  if (!ours) return undefined;\n", "")],
  },
  {
    name: "door: a read token of the secret before opens nothing",
    killedBy: TOKENS,
    edits: [readToken("const ours = secrets.some(", "const ours = secrets.slice(0, 1).some(")],
  },

  // Lists.
  {
    name: "door: a list ends where its search was cut short",
    killedBy: LISTS,
    only: "is read to its end",
    edits: [readVerbs("return { rows, next: answered[0]?.boundary ?? null };", "return { rows, next: null };")],
  },
  {
    name: "door: a page leaves out the first job of the next",
    killedBy: LISTS,
    only: "is read to its end",
    edits: [readVerbs("next: rows[limit - 1]!.id", "next: rows[limit]!.id")],
  },

  // The server.
  {
    name: "door: a tenant may see the whole installation",
    killedBy: ACCESS,
    only: "GET /v1/pools",
    edits: [law('["public", "follow", "read", "operate"]', '["public", "follow", "read", "operate", "oversee"]')],
  },
  {
    name: "door: a reader may do what an operator may",
    killedBy: ACCESS,
    only: "POST /v1/jobs/:id/cancel",
    edits: [law('  operate: ["operator", "admin"],', '  operate: ["reader", "operator", "admin"],')],
  },
  {
    name: "door: a read token of one job opens every job",
    killedBy: ACCESS,
    only: "GET /v1/jobs/:id$",
    edits: [jobs("if (id !== undefined) return job.id === id;", "if (id !== undefined) return true;")],
  },
  {
    name: "door: a read token of one key opens the whole pipeline",
    killedBy: ACCESS,
    only: "GET /v1/jobs/:id$",
    edits: [jobs("job.pipeline === pipeline && job.key === key && job", "job.pipeline === pipeline && job")],
  },
  {
    // Each of the two hides others' jobs alone, so that either may fall without harm; not both.
    name: "door: neither wall stands between the tenants",
    killedBy: OTHERS,
    only: "is answered as one that is not there",
    edits: [
      jobs("  if (who.tenant !== null && job.tenant !== who.tenant) return false;\n", ""),
      house("if (who.tenant === null) return this.stillwake;", "if (true as boolean) return this.stillwake;"),
    ],
  },
  {
    name: "door: a customer is shown what the house put in",
    killedBy: OTHERS,
    only: "sees how the job fares",
    edits: [jobs("return { ...job, ...hidden, failure", "return { ...job, failure")],
  },
  {
    name: "door: a read token of one key opens the jobs of every tenant that uses it",
    killedBy: TENANTS,
    only: "opens the jobs of its tenant",
    edits: [jobs("job.key === key && job.tenant === tenant;", "job.key === key;")],
  },
  {
    name: "door: a token of one tenant is not bound to it where keys meet",
    killedBy: TENANTS,
    only: "is taken, by join too",
    edits: [jobControl("      shared.boundTo = who.tenant;\n", "")],
  },
  {
    name: "door: the job of another tenant is answered to one who wants its key",
    killedBy: OTHERS,
    only: "keeps its key",
    edits: [enqueue("if p_options ->> 'bound_to' is not null then", "if false then")],
  },
  {
    name: "door: the job of another tenant is replaced",
    killedBy: OTHERS,
    only: "keeps its key",
    edits: [keys("if p_row.tenant is not null then", "if false then")],
  },
  {
    name: "door: a refusal names the job of another tenant that has the key",
    killedBy: OTHERS,
    only: "keeps its key",
    edits: [keys("if p_row.tenant is not null and v_one.id is not null then", "if false then")],
  },
  {
    name: "door: a token of one tenant makes jobs for another",
    killedBy: OTHERS,
    only: "cannot be made by a token",
    edits: [
      jobControl("if (shared.tenant !== undefined && shared.tenant !== who.tenant) {", "if (false as boolean) {"),
      jobControl("      shared.tenant = who.tenant;\n", ""),
    ],
  },
  {
    name: "door: an input is not held against the schema of its pipeline",
    killedBy: SERVER,
    edits: [jobControl("return conform(house.schemas, info, input, at);", "return input;")],
  },
  {
    name: "door: what cannot be recorded is done",
    killedBy: SERVER,
    only: "are not steered when it cannot be recorded",
    edits: [app("if (!writes || begun) return;", "if (true as boolean) return;")],
  },
  {
    name: "door: a cookie is taken from a page of another origin",
    killedBy: TENANTS,
    only: "takes no cookie",
    edits: [identify("if (origin !== null && !isOwn(origin,", "if ((false as boolean) && !isOwn(String(origin),")],
  },
  {
    name: "door: a read token finds what it is not shown",
    killedBy: TENANTS,
    only: "cannot look for what it is not shown",
    edits: [jobs("  if (other) {\n", "  if (other && (false as boolean)) {\n")],
  },
  {
    name: "door: a page of another origin may write",
    killedBy: GUARDS,
    only: "cannot write",
    edits: [origin("if (foreign && !(origin", "if ((false as boolean) && !(origin")],
  },
  {
    name: "door: a server without tokens answers to any name",
    killedBy: GUARDS,
    only: "cannot give this machine a name",
    edits: [origin('if (house.options.auth === "none" && !loopback.test(host)) {', "if (false as boolean) {")],
  },
  {
    name: "door: a body that does not say its length has no end",
    killedBy: GUARDS,
    only: "a body of more than a megabyte",
    edits: [limits("    if (size > MAX_BYTES) throw tooLarge();\n", "")],
  },
  {
    name: "door: a body may be as deep as it likes",
    killedBy: GUARDS,
    only: "deeper than 64",
    edits: [limits("if (depth > DEEPEST)", "if (false as boolean)")],
  },
  {
    name: "door: nobody asks too often",
    killedBy: GUARDS,
    only: "is told when to come again",
    edits: [app("  hurry(who.id ?? who.name, house.rate);\n", "")],
  },
  {
    name: "door: a token that ran out is remembered as good",
    killedBy: GUARDS,
    only: "ends when its token runs out",
    edits: [
      identify(
        "return identity && (identity.expiresAt === null || identity.expiresAt.getTime() > Date.now()) ? identity : undefined;",
        "return identity;",
      ),
    ],
  },
  {
    name: "door: what is wrong inside is told outside",
    killedBy: GUARDS,
    only: "stays inside when the server itself is wrong",
    edits: [problem(': "Something went wrong inside the server";', ": String(error);")],
  },
  {
    name: "door: the streams of a token that was taken back go on",
    killedBy: GUARDS,
    only: "ends at once when its token is revoked",
    edits: [serverTokens("    house.streams.sendAway(id);\n", "")],
  },
];
