// How `stillwake dev` is told to stop: Ctrl-C, a signal, or the end of the npm that started it. The first ends everything in good order, the next
// one at once: then the shells that watch over Postgres and over the runners end those.

/** One Ctrl-C may arrive twice: the terminal sends it to the whole group, and npm passes its own on. */
const SAME_MS = 500;
const LOOK_MS = 500;

export interface Stopping {
  readonly begun: boolean;
}

export function onStopSignals(close: () => Promise<void>, underNpm: boolean): Stopping {
  let begunAt: number | undefined;
  const stop = () => {
    if (begunAt !== undefined) {
      if (performance.now() - begunAt > SAME_MS) process.exit(130);
      return;
    }
    begunAt = performance.now();
    // What was still being started when it was told to stop may hold on to the process.
    void close().then(
      () => process.exit(process.exitCode ?? 0),
      (error) => {
        console.error(error);
        process.exit(1);
      },
    );
  };
  for (const signal of ["SIGINT", "SIGTERM", "SIGHUP"] as const) process.on(signal, stop);
  // A closed terminal ends npm's shell too. That is no second word from anybody.
  if (underNpm) whenOrphaned(() => begunAt === undefined && stop());
  return {
    get begun() {
      return begunAt !== undefined;
    },
  };
}

/** npm puts a shell between itself and us, and that shell dies of a SIGTERM without passing it on. */
function whenOrphaned(stop: () => void): void {
  const parent = process.ppid;
  const timer = setInterval(() => {
    if (process.ppid === parent) return;
    clearInterval(timer);
    stop();
  }, LOOK_MS);
  timer.unref();
}
