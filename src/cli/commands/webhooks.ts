// stillwake webhooks: which there are, where they go, one sent again; and `send`, which sends what is due and ends, for a cron where no worker stays
// up. Where that may go comes from the configuration file, as for a worker.
import { InvalidInput } from "../../errors.ts";
import { inPath } from "../api-client.ts";
import { checkJobId, checkOneOf, checkWebhookId, webhookStates } from "../checks.ts";
import type { Call } from "../command.ts";
import { numberOf } from "../json-word.ts";
import { inLine } from "../output/escape.ts";
import { ago } from "../output/moments.ts";
import type { Colour } from "../output/screen.ts";
import { printTable } from "../output/table.ts";

/** As long as a cron of every minute leaves it, and as a claim lasts. */
const LIMIT_MS = 50_000;

export async function webhooksCommand(call: Call): Promise<number> {
  const [act, id] = call.words;
  if (act === "send") return send(call);
  if (act === "endpoints") return endpoints(call);
  if (act === undefined) return list(call);
  if (id === undefined)
    throw new InvalidInput("webhooks resend needs an id", { remedy: "See stillwake webhooks for it" });
  checkWebhookId(id);
  const answer = await (await call.door()).call("POST", `/v1/webhooks/${inPath(id)}/resend`);
  if (call.flags.json) call.screen.json(answer);
  else call.screen.print(inLine(`Webhook ${id} will be sent again.`));
  return 0;
}

const colourOf: Record<string, Colour | undefined> = { delivered: "green", failed: "red" };

interface Webhook {
  id: string;
  endpoint: string;
  url: string;
  jobId: string;
  event: string;
  state: string;
  attempts: number;
  createdAt: string;
  nextAt: string | null;
  deliveries: { status: number | null; error: string | null }[];
}

async function list({ flags, screen, door }: Call): Promise<number> {
  const { state, endpoint, job, cursor } = flags;
  checkOneOf(state, webhookStates, "state");
  if (job !== undefined) checkJobId(job);
  const query = { state, endpoint, job, cursor, limit: numberOf(flags.limit, "limit") };
  const answer = await (await door()).call("GET", "/v1/webhooks", { query });
  if (flags.json) {
    screen.json(answer);
    return 0;
  }
  printTable<Webhook>(
    screen,
    answer.webhooks,
    [
      { title: "WEBHOOK", of: (webhook) => webhook.id },
      { title: "STATE", of: (webhook) => webhook.state, colour: (webhook) => colourOf[webhook.state] },
      { title: "TRIES", of: ({ attempts }) => attempts, right: true },
      { title: "EVENT", of: ({ event }) => event, spare: true },
      { title: "JOB", of: ({ jobId }) => jobId, spare: true },
      { title: "CREATED", of: ({ createdAt }) => ago(createdAt), right: true, spare: true },
      { title: "NEXT", of: ({ nextAt }) => ago(nextAt), right: true, spare: true },
      {
        title: "LAST ANSWER",
        of: ({ deliveries }) => deliveries.at(-1)?.error ?? deliveries.at(-1)?.status,
        elastic: true,
      },
      { title: "ENDPOINT", of: (webhook) => webhook.endpoint, elastic: true, spare: true },
      { title: "URL", of: ({ url }) => url, elastic: true, spare: true },
    ],
    "There are no such webhooks.",
  );
  if (answer.cursor !== null) screen.say(`There are more: --cursor ${answer.cursor}`);
  return 0;
}

interface Endpoint {
  name: string;
  url: string | null;
  on: string[];
  pipelines: string[];
  secrets: number;
  disabledAt: string | null;
  disabledReason: string | null;
  failures: number;
}

async function endpoints({ flags, screen, door }: Call): Promise<number> {
  const answer = await (await door()).call("GET", "/v1/endpoints");
  if (flags.json) screen.json(answer);
  else {
    printTable<Endpoint>(
      screen,
      answer.endpoints,
      [
        { title: "ENDPOINT", of: ({ name }) => name, elastic: true },
        { title: "URL", of: ({ url }) => url ?? "each job's own", elastic: true },
        { title: "ON", of: ({ on }) => (on.length === 3 ? "every end" : on.join(", ")) },
        { title: "PIPELINES", of: ({ pipelines }) => pipelines.join(", "), elastic: true },
        { title: "SECRETS", of: ({ secrets }) => secrets, right: true },
        { title: "FAILURES", of: ({ failures }) => failures, right: true },
        {
          title: "DISABLED",
          of: ({ disabledAt, disabledReason }) => [ago(disabledAt), disabledReason].filter(Boolean).join(", "),
          colour: () => "red",
          elastic: true,
        },
      ],
      "There are no endpoints.",
    );
  }
  return 0;
}

async function send({ flags, config, screen }: Call): Promise<number> {
  const [{ createSender }, { loadConfigFile }, { needUrl }] = await Promise.all([
    import("../../webhooks/sender.ts"),
    import("../config-file.ts"),
    import("./migrate.ts"),
  ]);
  const { webhooks } = await loadConfigFile(flags.config);
  let trouble: Error | undefined;
  const count = { delivered: 0, pending: 0, failed: 0, lost: 0 };
  const sender = createSender({
    ...((webhooks || {}) as object),
    url: needUrl(flags.url ?? config.databaseUrl),
    schema: flags.schema ?? config.schema,
    patience: "10s",
    onSent: ({ state }) => {
      count[state] += 1;
    },
    onTrouble: (error) => {
      trouble ??= error as Error;
    },
  });
  await sender.flush(LIMIT_MS).finally(() => sender.stop());
  const { delivered, pending, failed, lost } = count;
  if (flags.json) screen.json(count, { lines: true });
  else
    screen.print(
      `${delivered} delivered, ${pending} to be tried again, ${failed} failed, ${lost} taken over by others`,
    );
  if (!trouble) return 0;
  screen.say(trouble.message);
  return 1;
}
