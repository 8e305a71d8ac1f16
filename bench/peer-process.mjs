// The parent's side of child.mjs: starts one peer in a separate process and sends it one command at a time.
import { fork } from "node:child_process";
import { once } from "node:events";
import { setTimeout as delay } from "node:timers/promises";
import { fileURLToPath } from "node:url";

const TIME_LIMIT_MS = 300_000;

export async function inChild(subject, work) {
  const child = await startChild(subject);
  try {
    return await work(child);
  } finally {
    await child.close();
  }
}

export async function startChild({ peer, workload }) {
  const child = fork(fileURLToPath(new URL("child.mjs", import.meta.url)), [peer, workload], {
    stdio: ["ignore", "inherit", "inherit", "ipc"],
    execArgv: ["--no-deprecation"],
  });
  const exited = once(child, "exit");
  async function receive(verb) {
    const timer = new AbortController();
    const timeout = delay(TIME_LIMIT_MS, undefined, { signal: timer.signal }).then(
      () => [{ failure: `no response to ${verb} in ${TIME_LIMIT_MS} ms` }],
      () => {},
    );
    const gone = exited.then(() => [{ failure: `the process exited during ${verb}` }]);
    const [message] = await Promise.race([once(child, "message"), timeout, gone]);
    timer.abort();
    if (message.failure) throw new Error(`${peer}: ${message.failure}`);
    return message.answer;
  }
  await receive("start");
  return {
    pid: child.pid,
    call(verb, values) {
      const response = receive(verb);
      child.send({ verb, values });
      return response;
    },
    async close() {
      if (child.exitCode !== null || child.signalCode !== null) return;
      if (child.connected) child.send({ verb: "close" });
      const timer = setTimeout(() => child.kill("SIGKILL"), 10_000);
      await exited;
      clearTimeout(timer);
    },
  };
}
