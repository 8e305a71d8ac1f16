// stillwake tokens, stillwake read-token and stillwake audit.
import { InvalidInput } from "../../errors.ts";
import type { api as apiTypes } from "../../server/index.ts";
import { checkJobId, checkOneOf, checkTokenId, parseInteger, pathSegment, roles } from "../arguments.ts";
import { apiFlags, type Command } from "../command.ts";
import type { Column } from "../output/table.ts";
import { formatAgo } from "../output/time.ts";
import { changeResource, printResources } from "../resource.ts";

export const tokensCommand: Command = {
  name: "tokens",
  group: "Access",
  summary: "list the tokens of the server, create or revoke one",
  // Joined, because the test of the boundaries takes a text that starts with "create " for SQL.
  usage: ["", ["create", "--name <name> --role <role>"].join(" "), "revoke <id>"],
  args: [0, 2],
  subcommands: ["create", "revoke"],
  flags: {
    name: "<name> the person or program that will use it",
    role: "<role> reader, operator, admin, worker",
    tenant: "<tenant> restrict it to the jobs of this tenant",
    "expires-in": "<time> validity, such as 90d (default: until it is revoked)",
    pipeline: "<names> that an operator may enqueue, separated by commas (default: any)",
    pool: "<names> that an operator may choose besides that of the pipeline (default with a tenant: none, else any)",
    "max-priority": "<n> the highest priority that an operator may choose (default with a tenant: 0, else 1000)",
    ...apiFlags,
  },
  examples: [
    ["tokens create --name ann --role operator --expires-in 90d", "the token is shown once"],
    ["tokens create --name acme --role operator --tenant acme --pipeline scan,report", "for the program of a customer"],
    ["tokens", "with the time of the last use"],
    ["tokens revoke 01a1e107-2508-7182-ae66-db7bbe9aa49e", "by its id, which is not the token"],
  ],
  async run(context) {
    const { flags, screen, api } = context;
    const [action, id] = context.args;
    const { name, role, tenant, expiresIn, pipeline, pool, maxPriority } = flags;
    if (action !== "create" && (name ?? role ?? tenant ?? expiresIn ?? pipeline ?? pool ?? maxPriority) !== undefined) {
      throw new InvalidInput("Flags such as --name, --role and --tenant belong to tokens create", {
        remedy: "Write stillwake tokens create --name <name> --role <role>",
      });
    }
    if (action === "create") {
      if (!name || !role || id !== undefined) {
        throw new InvalidInput("A token needs a name and a role", {
          field: name ? "role" : "name",
          remedy: "Write stillwake tokens create --name <name> --role reader|operator|admin|worker",
        });
      }
      checkOneOf(role, roles, "role");
      const limits = {
        pipelines: splitNames(pipeline),
        pools: splitNames(pool),
        maxPriority: parseInteger(maxPriority, "max-priority"),
      };
      const body = { name, role, tenant, expiresIn, ...limits };
      const created = await (await api()).call("POST", "/v1/tokens", { body });
      if (flags.json) screen.json(created);
      else screen.print(created.token);
      screen.printStderr("The token is shown only once: the database stores its hash.");
      return 0;
    }
    if (action === "revoke") {
      if (id === undefined)
        throw new InvalidInput("tokens revoke needs an id", { remedy: "stillwake tokens lists the ids" });
      const path = `/v1/tokens/${pathSegment(checkTokenId(id))}`;
      return changeResource(context, "DELETE", path, `Token ${id} is revoked.`);
    }
    return printResources(context, "tokens", tokenColumns, "There are no tokens.");
  },
};

const tokenColumns: readonly Column<apiTypes.Token>[] = [
  { title: "ID", value: (token) => token.id },
  { title: "NAME", value: (token) => token.name, elastic: true },
  { title: "ROLE", value: (token) => token.role },
  { title: "TENANT", value: (token) => token.tenant, elastic: true, optional: true },
  { title: "MAY ENQUEUE", value: describeLimits, elastic: true, optional: true },
  { title: "PREFIX", value: ({ prefix }) => `${prefix}…`, optional: true },
  { title: "CREATED", value: ({ createdAt }) => formatAgo(createdAt), right: true, optional: true },
  { title: "USED", value: ({ lastUsedAt }) => formatAgo(lastUsedAt) || "never", right: true, optional: true },
  { title: "EXPIRES", value: ({ expiresAt }) => formatAgo(expiresAt), right: true, optional: true },
  { title: "REVOKED", value: ({ revokedAt }) => formatAgo(revokedAt), right: true, colour: () => "red" },
];

function splitNames(names: string | undefined): string[] | undefined {
  return names
    ?.split(",")
    .map((name) => name.trim())
    .filter(Boolean);
}

function describeLimits({ pipelines, pools, maxPriority }: apiTypes.Token): string {
  return [
    pipelines?.join(", "),
    pools && `in ${pools.join(", ")}`,
    maxPriority !== null && `up to priority ${maxPriority}`,
  ]
    .filter(Boolean)
    .join("; ");
}

export const readTokenCommand: Command = {
  name: "read-token",
  group: "Access",
  summary: "sign a token that can read one job, or the jobs of one key",
  usage: ["--job <id>", "--pipeline <name> --key <key>"],
  args: [0, 0],
  flags: {
    job: "<id> the job it can read",
    pipeline: "<name> with --key: all jobs of that key",
    key: "<key> of the pipeline",
    "expires-in": "<time> validity, at most 24h (default: 1h)",
    ...apiFlags,
  },
  examples: [
    ["read-token --job 01a1e107-2508-7182-ae66-db7bbe9aa49e", "for the browser of the user who waits for it"],
    ["read-token --pipeline extraction --key acme --expires-in 15m", ""],
  ],
  async run({ flags, screen, api }) {
    const { job, pipeline, key, expiresIn } = flags;
    const forKey = pipeline !== undefined && key !== undefined;
    if (job === undefined ? !forKey : (pipeline ?? key) !== undefined) {
      throw new InvalidInput("A read token is for one job, or for one key of a pipeline", {
        remedy: "Pass --job <id>, or --pipeline <name> --key <key>",
      });
    }
    if (job !== undefined) checkJobId(job);
    const created = await (await api()).call("POST", "/v1/read-tokens", { body: { job, pipeline, key, expiresIn } });
    if (flags.json) screen.json(created);
    else screen.print(created.token);
    return 0;
  },
};

export const auditCommand: Command = {
  name: "audit",
  group: "Access",
  summary: "list the audit entries of the server, newest first",
  usage: [""],
  args: [0, 0],
  flags: {
    target: "<target> of this job, pool, token, …",
    limit: "<n> the maximum number (default: 50)",
    cursor: "<cursor> continue after the previous page",
    ...apiFlags,
  },
  examples: [
    ["audit", ""],
    ["audit --target 01a1e107-2508-7182-ae66-db7bbe9aa49e", "who cancelled it?"],
  ],
  async run(context) {
    const { target, limit, cursor } = context.flags;
    const query = { target, limit: parseInteger(limit, "limit"), cursor };
    const request = { query, field: "entries" };
    return printResources(context, "audit", auditColumns, "There are no audit entries.", request);
  },
};

const auditColumns: readonly Column<apiTypes.AuditEntry>[] = [
  { title: "WHEN", value: ({ at }) => formatAgo(at), right: true },
  { title: "WHO", value: ({ actor }) => actor, elastic: true },
  { title: "ACTION", value: ({ act }) => act },
  { title: "TARGET", value: ({ target }) => target },
  { title: "TENANT", value: ({ tenant }) => tenant, elastic: true, optional: true },
  { title: "BEFORE", value: ({ before }) => toJson(before), elastic: true, optional: true, maxWidth: 50 },
  { title: "AFTER", value: ({ after }) => toJson(after), elastic: true, optional: true, maxWidth: 50 },
  { title: "FROM", value: ({ address }) => address, optional: true },
];

function toJson(value: unknown): string | null {
  return value ? JSON.stringify(value) : null;
}
