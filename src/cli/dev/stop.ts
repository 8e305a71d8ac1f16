// Stop signals of `stillwake dev`: Ctrl-C, a signal, or the end of the npm that started it. The first one shuts down
// in order; the next one exits at once, and the watchdog shells of Postgres and of the runners stop those.

/** One Ctrl-C may arrive twice: from the terminal, which signals the whole process group, and from npm. */
const SAME_SIGNAL_MS = 500;
const PARENT_CHECK_MS = 500;

export interface Stopping {
  readonly begun: boolean;
}

export function onStopSignals(close: () => Promise<void>, underNpm: boolean): Stopping {
  let begunAt: number | undefined;
  const stop = () => {
    if (begunAt !== undefined) {
      if (performance.now() - begunAt > SAME_SIGNAL_MS) process.exit(130);
      return;
    }
    begunAt = performance.now();
    // process.exit: what was still starting may keep the process alive.
    void close().then(
      () => process.exit(process.exitCode ?? 0),
      (error) => {
        console.error(error);
        process.exit(1);
      },
    );
  };
  for (const signal of ["SIGINT", "SIGTERM", "SIGHUP"] as const) process.on(signal, stop);
  // A closed terminal ends npm's shell too: that must not count as a second signal.
  if (underNpm) onOrphaned(() => begunAt === undefined && stop());
  return {
    get begun() {
      return begunAt !== undefined;
    },
  };
}

/** npm runs scripts in a shell, which exits on SIGTERM without forwarding it. */
function onOrphaned(stop: () => void): void {
  const parent = process.ppid;
  const timer = setInterval(() => {
    if (process.ppid === parent) return;
    clearInterval(timer);
    stop();
  }, PARENT_CHECK_MS);
  timer.unref();
}
