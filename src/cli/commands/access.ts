// Who may come in by the server, and what they did there.
import { InvalidInput } from "../../errors.ts";
import { inPath } from "../api-client.ts";
import { checkJobId, checkOneOf, checkTokenId, roles } from "../checks.ts";
import type { Runner } from "../command.ts";
import { numberOf } from "../json-word.ts";
import { inLine } from "../output/escape.ts";
import { ago } from "../output/moments.ts";
import { printTable } from "../output/table.ts";

export const tokensCommand: Runner = async ({ words, flags, screen, door }) => {
  const [act, id] = words;
  const { name, role, tenant, expiresIn } = flags;
  if (act !== "create" && (name ?? role ?? tenant ?? expiresIn) !== undefined) {
    throw new InvalidInput("--name, --role, --tenant and --expires-in belong to tokens create", {
      remedy: "Write stillwake tokens create --name <name> --role <role>",
    });
  }
  if (act === "create") {
    if (!name || !role || id !== undefined) {
      throw new InvalidInput("A token has a name and a role", {
        field: name ? "role" : "name",
        remedy: "Write stillwake tokens create --name <who> --role reader|operator|admin|worker",
      });
    }
    checkOneOf(role, roles, "role");
    const answer = await (await door()).call("POST", "/v1/tokens", { body: { name, role, tenant, expiresIn } });
    if (flags.json) screen.json(answer);
    else screen.print(answer.token);
    screen.say("It is shown this once: the database has its hash alone.");
    return 0;
  }
  if (act === "revoke") {
    if (id === undefined)
      throw new InvalidInput("tokens revoke needs an id", { remedy: "See stillwake tokens for it" });
    checkTokenId(id);
    const answer = await (await door()).call("DELETE", `/v1/tokens/${inPath(id)}`);
    if (flags.json) screen.json(answer);
    else screen.print(`Token ${inLine(id)} opens nothing any more.`);
    return 0;
  }
  const answer = await (await door()).call("GET", "/v1/tokens");
  if (flags.json) screen.json(answer);
  else {
    printTable<Token>(
      screen,
      answer.tokens,
      [
        { title: "ID", of: (token) => token.id },
        { title: "NAME", of: (token) => token.name, elastic: true },
        { title: "ROLE", of: (token) => token.role },
        { title: "TENANT", of: (token) => token.tenant, elastic: true, spare: true },
        { title: "BEGINS", of: ({ prefix }) => `${prefix}…`, spare: true },
        { title: "CREATED", of: ({ createdAt }) => ago(createdAt), right: true, spare: true },
        { title: "USED", of: ({ lastUsedAt }) => ago(lastUsedAt) || "never", right: true, spare: true },
        { title: "EXPIRES", of: ({ expiresAt }) => ago(expiresAt), right: true, spare: true },
        { title: "REVOKED", of: ({ revokedAt }) => ago(revokedAt), right: true, colour: () => "red" },
      ],
      "There are no tokens.",
    );
  }
  return 0;
};

interface Token {
  id: string;
  name: string;
  prefix: string;
  role: string;
  tenant: string | null;
  createdAt: string;
  expiresAt: string | null;
  lastUsedAt: string | null;
  revokedAt: string | null;
}

export const readTokenCommand: Runner = async ({ flags, screen, door }) => {
  const { job, pipeline, key, expiresIn } = flags;
  const forKey = pipeline !== undefined && key !== undefined;
  if (job === undefined ? !forKey : (pipeline ?? key) !== undefined) {
    throw new InvalidInput("A read token is for one job, or for one key of a pipeline", {
      remedy: "Pass --job <id>, or --pipeline <name> --key <key>",
    });
  }
  if (job !== undefined) checkJobId(job);
  const answer = await (await door()).call("POST", "/v1/read-tokens", { body: { job, pipeline, key, expiresIn } });
  if (flags.json) screen.json(answer);
  else screen.print(answer.token);
  return 0;
};

export const auditCommand: Runner = async ({ flags, screen, door }) => {
  const query = { target: flags.target, limit: numberOf(flags.limit, "limit"), cursor: flags.cursor };
  const answer = await (await door()).call("GET", "/v1/audit", { query });
  if (flags.json) {
    screen.json(answer);
    return 0;
  }
  printTable<Act>(
    screen,
    answer.acts,
    [
      { title: "WHEN", of: ({ at }) => ago(at), right: true },
      { title: "WHO", of: ({ actor }) => actor, elastic: true },
      { title: "ACT", of: ({ act }) => act },
      { title: "TARGET", of: ({ target }) => target },
      { title: "TENANT", of: ({ tenant }) => tenant, elastic: true, spare: true },
      { title: "BEFORE", of: ({ before }) => before && JSON.stringify(before), elastic: true, spare: true, most: 50 },
      { title: "AFTER", of: ({ after }) => after && JSON.stringify(after), elastic: true, spare: true, most: 50 },
      { title: "FROM", of: ({ address }) => address, spare: true },
    ],
    "Nothing was done.",
  );
  if (answer.cursor !== null) screen.say(`There is more: --cursor ${answer.cursor}`);
  return 0;
};

interface Act {
  at: string;
  actor: string;
  act: string;
  target: string | null;
  tenant: string | null;
  // biome-ignore lint/suspicious/noExplicitAny: whatever was recorded.
  before: any;
  // biome-ignore lint/suspicious/noExplicitAny: whatever was recorded.
  after: any;
  address: string | null;
}
