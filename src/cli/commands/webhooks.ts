// stillwake webhooks: lists webhooks and endpoints, resends one; `send` delivers what is due once, for cron where no
// worker keeps running. The allowed targets come from the configuration file, as for a worker.
import { InvalidInput } from "../../errors.ts";
import type { api as apiTypes } from "../../server/index.ts";
import { checkJobId, checkOneOf, checkWebhookId, parseInteger, pathSegment, webhookStates } from "../arguments.ts";
import { apiFlags, type Command, type CommandContext } from "../command.ts";
import type { Colour } from "../output/screen.ts";
import type { Column } from "../output/table.ts";
import { formatAgo } from "../output/time.ts";
import { changeResource, printResources } from "../resource.ts";

/** Shorter than the minute between two cron runs, and than a claim of a delivery. */
const SEND_TIMEOUT_MS = 50_000;

export const webhooksCommand: Command = {
  name: "webhooks",
  group: "Control",
  summary: "list webhooks and endpoints, resend one, or send what is due once",
  usage: ["", "endpoints", "resend <id>", "send"],
  args: [0, 2],
  subcommands: ["endpoints", "resend", "send"],
  flags: {
    state: "<state> pending, delivered, failed",
    endpoint: "<name> of this endpoint",
    job: "<id> of this job",
    limit: "<n> the maximum number (default: 50)",
    cursor: "<cursor> continue after the previous page",
    config: "<file> with send: instead of ./stillwake.config.{ts,mts,js,mjs}, which has the allowed targets",
    ...apiFlags,
  },
  examples: [
    ["webhooks --state failed", "undelivered webhooks"],
    ["webhooks resend msg_01a1e1072508…", "with the same id"],
    ["webhooks send", "from cron where no worker keeps running: * * * * * stillwake webhooks send"],
  ],
  async run(context) {
    const [action, id] = context.args;
    if (action === "send") return sendDue(context);
    if (action === "endpoints") return printResources(context, "endpoints", endpointColumns, "There are no endpoints.");
    if (action === undefined) {
      const { state, endpoint, job, cursor, limit } = context.flags;
      checkOneOf(state, webhookStates, "state");
      if (job !== undefined) checkJobId(job);
      const query = { state, endpoint, job, cursor, limit: parseInteger(limit, "limit") };
      return printResources(context, "webhooks", webhookColumns, "No webhooks match.", { query });
    }
    if (id === undefined)
      throw new InvalidInput("webhooks resend needs an id", { remedy: "stillwake webhooks lists the ids" });
    const path = `/v1/webhooks/${pathSegment(checkWebhookId(id))}/resend`;
    return changeResource(context, "POST", path, `Webhook ${id} will be sent again.`);
  },
};

const STATE_COLOURS: Record<string, Colour | undefined> = { delivered: "green", failed: "red" };

const webhookColumns: readonly Column<apiTypes.Webhook>[] = [
  { title: "WEBHOOK", value: ({ id }) => id },
  { title: "STATE", value: (webhook) => webhook.state, colour: (webhook) => STATE_COLOURS[webhook.state] },
  { title: "DELIVERIES", value: ({ attempts }) => attempts, right: true },
  { title: "EVENT", value: ({ event }) => event, optional: true },
  { title: "JOB", value: ({ jobId }) => jobId, optional: true },
  { title: "CREATED", value: ({ createdAt }) => formatAgo(createdAt), right: true, optional: true },
  { title: "NEXT", value: ({ nextAt }) => formatAgo(nextAt), right: true, optional: true },
  {
    title: "LAST RESULT",
    value: ({ deliveries }) => deliveries.at(-1)?.error ?? deliveries.at(-1)?.status,
    elastic: true,
  },
  { title: "ENDPOINT", value: (webhook) => webhook.endpoint, elastic: true, optional: true },
  { title: "URL", value: ({ url }) => url, elastic: true, optional: true },
];

const endpointColumns: readonly Column<apiTypes.Endpoint>[] = [
  { title: "ENDPOINT", value: ({ name }) => name, elastic: true },
  { title: "URL", value: ({ url }) => url ?? "set per job", elastic: true },
  { title: "TENANT", value: ({ tenant }) => tenant, elastic: true, optional: true },
  { title: "ON", value: ({ on }) => (on.length === 3 ? "all final states" : on.join(", ")) },
  { title: "PIPELINES", value: ({ pipelines }) => pipelines.join(", "), elastic: true },
  { title: "SECRETS", value: ({ secrets }) => secrets, right: true },
  { title: "FAILURES", value: ({ failures }) => failures, right: true },
  {
    title: "DISABLED",
    value: ({ disabledAt, disabledReason }) => [formatAgo(disabledAt), disabledReason].filter(Boolean).join(", "),
    colour: () => "red",
    elastic: true,
  },
];

async function sendDue({ flags, config, screen }: CommandContext): Promise<number> {
  const [{ createSender }, { loadConfigFile }, { requireDatabaseUrl }] = await Promise.all([
    import("../../webhooks/sender.ts"),
    import("../config-file.ts"),
    import("../connection.ts"),
  ]);
  const { webhooks } = await loadConfigFile(flags.config);
  let firstError: Error | undefined;
  const counts = { delivered: 0, pending: 0, failed: 0, lost: 0 };
  const sender = createSender({
    ...((webhooks || {}) as object),
    url: requireDatabaseUrl(flags.url ?? config.databaseUrl),
    schema: flags.schema ?? config.schema,
    retryTimeout: "10s",
    onSent: ({ state }) => {
      counts[state] += 1;
    },
    onError: (error) => {
      firstError ??= error as Error;
    },
  });
  await sender.flush(SEND_TIMEOUT_MS).finally(() => sender.stop());
  const { delivered, pending, failed, lost } = counts;
  if (flags.json) screen.json(counts, { lines: true });
  else
    screen.print(
      `${delivered} delivered, ${pending} to be retried, ${failed} failed, ${lost} taken over by another sender`,
    );
  if (!firstError) return 0;
  screen.printStderr(firstError.message);
  return 1;
}
