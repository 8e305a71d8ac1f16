// Mutants of src/server.
export const file = "src/server/routes/jobs.ts";
export const killedBy = "test/server/guards.test.ts";

export const mutants = [
  {
    name: "health checks cause housekeeping",
    killedBy: "test/db/housekeeping.test.ts",
    only: "does it while it serves requests",
    file: "src/server/app.ts",
    old: 'if (route.access !== "public") context.housekeeping.check();',
    new: "context.housekeeping.check();",
  },
  {
    name: "a line id of one job is accepted as a cursor of another job's stream",
    killedBy: "test/live/stream.test.ts",
    only: "are rejected, and never show",
    file: "src/server/stream.ts",
    old: "seq === undefined || suffix !== idSuffix(id)",
    new: "seq === undefined",
  },
  {
    name: "a stream continues after its access has ended",
    killedBy: "test/live/stream.test.ts",
    only: "ends when the client loses access",
    file: "src/server/stream.ts",
    old: "if (!(await recheck!())) return undefined;",
    new: "await recheck!();",
  },
  {
    name: "a read token sees who did what and the stack of a failure",
    killedBy: "test/live/stream.test.ts",
    only: "is redacted for a read token",
    file: "src/server/stream.ts",
    old: "encode(redacted ? redactEvent(event) : event)",
    new: "encode(event)",
  },
  {
    name: "a read token receives events encoded for full access",
    killedBy: "test/live/stream.test.ts",
    only: "is redacted for a read token",
    file: "src/server/stream.ts",
    edits: [
      {
        old: "const cached = job.encoded[redacted ? 1 : 0];",
        new: "const cached = job.encoded[0];",
      },
      {
        old: "job.encoded[redacted ? 1 : 0] = {",
        new: "job.encoded[0] = {",
      },
    ],
  },
  {
    name: "a tenant token may read the whole installation",
    killedBy: "test/server/access.test.ts",
    only: "GET /v1/pools",
    file: "src/server/http/access.ts",
    old: '["public", "follow", "read", "operate"]',
    new: '["public", "follow", "read", "operate", "oversee"]',
  },
  {
    name: "a reader may do what an operator may do",
    killedBy: "test/server/access.test.ts",
    only: "POST /v1/jobs/:id/cancel",
    file: "src/server/http/access.ts",
    old: '  operate: ["operator", "admin"],',
    new: '  operate: ["reader", "operator", "admin"],',
  },
  {
    name: "a read token of one job gives access to every job",
    killedBy: "test/server/access.test.ts",
    only: "GET /v1/jobs/:id$",
    old: "if (id !== undefined) return job.id === id;",
    new: "if (id !== undefined) return true;",
  },
  {
    name: "a read token of one key gives access to the whole pipeline",
    killedBy: "test/server/access.test.ts",
    only: "GET /v1/jobs/:id$",
    old: "job.pipeline === pipeline && job.key === key && job",
    new: "job.pipeline === pipeline && job",
  },
  {
    name: "no check separates the tenants",
    killedBy: "test/server/access-others.test.ts",
    only: "is not found",
    edits: [
      {
        old: `  if (caller.tenant !== null && job.tenant !== caller.tenant) return false;
`,
        new: "",
      },
      {
        file: "src/server/context.ts",
        old: "if (caller.tenant === null) return this.stillwake;",
        new: "if (true as boolean) return this.stillwake;",
      },
    ],
  },
  {
    name: "a read token sees the server's internal fields",
    killedBy: "test/server/access-others.test.ts",
    only: "sees the state of the job",
    file: "src/server/http/redact.ts",
    old: "return { ...job, ...hidden, failure",
    new: "return { ...job, failure",
  },
  {
    name: "a read token of one key gives access to the jobs of every tenant with that key",
    killedBy: "test/server/tenants.test.ts",
    only: "gives access to jobs of its tenant",
    old: "job.key === key && job.tenant === tenant;",
    new: "job.key === key;",
  },
  {
    name: "a tenant token can name endpoints of the installation",
    killedBy: "test/server/tenants.test.ts",
    only: "not the tenant's",
    file: "src/server/routes/job-control.ts",
    old: `      shared.boundTo = caller.tenant;
`,
    new: "",
  },
  {
    name: "a tenant token can choose any pool",
    killedBy: "test/server/tenants.test.ts",
    only: "no higher priority",
    file: "src/server/http/access.ts",
    old: "limits?.pools ?? (tenant === null ? undefined : []);",
    new: "limits?.pools;",
  },
  {
    name: "a tenant token can choose any priority",
    killedBy: "test/server/tenants.test.ts",
    only: "no higher priority",
    file: "src/server/http/access.ts",
    old: "limits?.maxPriority ?? (tenant === null ? 1000 : 0)",
    new: "limits?.maxPriority ?? 1000",
  },
  {
    name: "a token that may enqueue some pipelines can schedule others",
    killedBy: "test/server/tenants.test.ts",
    only: "what it carries",
    file: "src/server/routes/schedules.ts",
    old: "    checkPipelineLimit(caller, body.pipeline);\n",
    new: "",
  },
  {
    name: "a tenant token can create jobs for another tenant",
    killedBy: "test/server/access-others.test.ts",
    only: "cannot be created with a token",
    file: "src/server/routes/job-control.ts",
    edits: [
      {
        old: "if (shared.tenant !== undefined && shared.tenant !== caller.tenant) {",
        new: "if (false as boolean) {",
      },
      {
        old: `      shared.tenant = caller.tenant;
`,
        new: "",
      },
    ],
  },
  {
    name: "an input is not validated against the schema of its pipeline",
    killedBy: "test/server/server.test.ts",
    file: "src/server/routes/job-control.ts",
    old: "return context.validateInput(info, input, at);",
    new: "return input;",
  },
  {
    name: "an action runs although its audit entry could not be written",
    killedBy: "test/server/server.test.ts",
    only: "are not controlled if the audit entry",
    file: "src/server/app.ts",
    old: "if (!audited || begun) return;",
    new: "if (true as boolean) return;",
  },
  {
    name: "a cookie is accepted from another origin",
    killedBy: "test/server/tenants.test.ts",
    only: "accepts no cookie",
    file: "src/server/http/identify.ts",
    old: "if (origin !== null && !isSameOrigin(origin,",
    new: "if ((false as boolean) && !isSameOrigin(String(origin),",
  },
  {
    name: "a read token can search hidden fields",
    killedBy: "test/server/tenants.test.ts",
    only: "cannot filter by hidden fields",
    old: `  if (other) {
`,
    new: `  if (other && (false as boolean)) {
`,
  },
  {
    name: "a page of another origin can write",
    only: "cannot write",
    file: "src/server/http/origin.ts",
    old: "if (foreign && !(origin",
    new: "if ((false as boolean) && !(origin",
  },
  {
    name: "a server without tokens accepts any host name",
    only: "cannot use another host name",
    file: "src/server/http/origin.ts",
    old: 'if (auth === "none" && !loopback.test(hostOf(request))) {',
    new: "if (false as boolean) {",
  },
  {
    name: "a body without a content length has no size limit",
    only: "a body of more than a megabyte",
    file: "src/server/http/request-input.ts",
    old: `    if (size > MAX_BYTES) throw tooLarge();
`,
    new: "",
  },
  {
    name: "a body has no depth limit",
    only: "deeper than 64",
    file: "src/server/http/request-input.ts",
    old: "if (depth > MAX_DEPTH)",
    new: "if (false as boolean)",
  },
  {
    name: "there is no rate limit",
    only: "gets a Retry-After",
    file: "src/server/app.ts",
    old: `  requestLimiter.take(caller.id ?? caller.name);
`,
    new: "",
  },
  {
    name: "an expired token is cached as valid",
    only: "ends when its token expires",
    file: "src/server/http/identify.ts",
    old: "return identity && (identity.expiresAt === null || identity.expiresAt.getTime() > Date.now()) ? identity : undefined;",
    new: "return identity;",
  },
  {
    name: "an internal error is shown to the client",
    only: "is hidden when the server itself fails",
    file: "src/server/http/problem.ts",
    old: ': "Internal server error";',
    new: ": String(error);",
  },
  {
    name: "the streams of a revoked token continue",
    only: "ends at once when its token is revoked",
    file: "src/server/routes/tokens.ts",
    old: `    context.streams.abortAll(id);
`,
    new: "",
  },
  {
    name: "pages may create markup from text",
    killedBy: "test/server/pages.test.ts",
    only: "let no text become a script",
    file: "src/server/http/pages.ts",
    old: "require-trusted-types-for 'script'; trusted-types 'none'",
    new: "trusted-types *",
  },
  {
    name: "pages of a server without tokens are served under any host name",
    killedBy: "test/server/pages.test.ts",
    only: "foreign host name",
    file: "src/server/app.ts",
    old: `      rejectForeignOrigin(context.options, c.req.raw);
      return page;`,
    new: "      return page;",
  },
  {
    name: "a path can inject markup into the page",
    killedBy: "test/server/pages.test.ts",
    only: "mount path",
    file: "src/server/context.ts",
    old: "/^(\\/[\\w.~-]+)*\\/?$/.test(path)",
    new: "/^\\//.test(path)",
  },
  {
    name: "a tenant sees the costs of other tenants",
    killedBy: "test/server/costs.test.ts",
    only: "own part",
    file: "src/server/routes/costs.ts",
    old: "...(caller.tenant !== null && { tenant: caller.tenant })",
    new: "",
  },
  {
    name: "the cost of a hidden job is returned",
    killedBy: "test/server/costs.test.ts",
    only: "may not be seen",
    file: "src/server/routes/costs.ts",
    old: `    await reader.get(params.id!);
`,
    new: `    void reader;
`,
  },
  {
    name: "the mount path of a request that a router has shortened is not read",
    killedBy: "test/server/mount.test.ts",
    file: "src/server/http/mount.ts",
    old: 'originalUrl?.startsWith("/") ?',
    new: 'originalUrl === "" ?',
  },
];
