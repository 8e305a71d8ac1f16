// DBOS: a workflow of five steps on a queue. Only workerConcurrency, because a global limit makes every dequeue count the running
// workflows; a polling interval of 10 ms (default: a second), a larger pool, logs errors only.
import { load } from "../../install.mjs";
import { STEP_SLOTS, STEPS, sqlJudge } from "../index.mjs";

const { DBOS, DBOSClient } = await load("@dbos-inc/dbos-sdk");
const NAME = "bench";
// The same in the enqueuing and the working process.
const VERSION = "1";
const POOL = 20;
const CALLERS = 20;
const ignore = () => {};
const logger = { debug: ignore, info: ignore, warn: ignore, error: (entry) => console.error("DBOS:", entry) };
let handler;

DBOS.registerWorkflow(
  async (data) => {
    const { handle, begin, between } = handler;
    begin();
    for (let i = 1; i <= STEPS; i++) {
      await DBOS.runStep(async () => i, { name: `s${i}` });
      if (between) await between();
    }
    handle(data);
  },
  { name: NAME },
);

async function launch(url, listenQueues) {
  DBOS.setConfig({
    name: NAME,
    systemDatabaseUrl: url,
    systemDatabasePoolSize: POOL,
    applicationVersion: VERSION,
    listenQueues,
    logger,
  });
  await DBOS.launch();
}

export async function install(url) {
  await launch(url, []);
  await DBOS.registerQueue(NAME, { workerConcurrency: STEP_SLOTS, minPollingIntervalMs: 10 });
  await DBOS.shutdown();
}

export async function producer(url) {
  const client = await DBOSClient.create({
    systemDatabaseUrl: url,
    systemDatabasePoolSize: CALLERS,
    applicationName: NAME,
    logger,
  });
  const one = (data) => client.enqueue({ queueName: NAME, workflowName: NAME, appVersion: VERSION }, data);
  return {
    one,
    // It has no bulk call for applications.
    async many(list) {
      let next = 0;
      const caller = async () => {
        while (next < list.length) await one(list[next++]);
      };
      await Promise.all(Array.from({ length: CALLERS }, caller));
    },
    close: () => client.destroy(),
  };
}

export async function worker(url, handle, hooks) {
  handler = { handle, ...hooks };
  await launch(url, [NAME]);
  return { stop: () => DBOS.shutdown() };
}

export function judge(url) {
  const jobs = "from dbos.workflow_status where status";
  return sqlJudge(
    url,
    `${jobs} in ('ENQUEUED', 'DELAYED', 'PENDING')`,
    `${jobs} = 'SUCCESS'`,
    "from dbos.operation_outputs where error is null and function_name = 's' || (output::jsonb ->> 'json')",
  );
}
