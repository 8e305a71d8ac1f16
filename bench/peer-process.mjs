// The parent's end of child.mjs: one peer in a process of its own, asked one thing at a time.
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
  const ended = once(child, "exit");
  async function answer(verb) {
    const impatient = new AbortController();
    const late = delay(TIME_LIMIT_MS, undefined, { signal: impatient.signal }).then(
      () => [{ failure: `no answer to ${verb} in ${TIME_LIMIT_MS} ms` }],
      () => {},
    );
    const gone = ended.then(() => [{ failure: `the process ended during ${verb}` }]);
    const [message] = await Promise.race([once(child, "message"), late, gone]);
    impatient.abort();
    if (message.failure) throw new Error(`${peer}: ${message.failure}`);
    return message.answer;
  }
  await answer("start");
  return {
    pid: child.pid,
    call(verb, values) {
      const answered = answer(verb);
      child.send({ verb, values });
      return answered;
    },
    async close() {
      if (child.exitCode !== null || child.signalCode !== null) return;
      if (child.connected) child.send({ verb: "close" });
      const impatient = setTimeout(() => child.kill("SIGKILL"), 10_000);
      await ended;
      clearTimeout(impatient);
    },
  };
}
