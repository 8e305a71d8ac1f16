// Concurrent calls share one statement and so one commit; each resolves only when its own row is durable. Calls gather
// while a statement is in flight, so batches grow with the load, without a timer and without added delay.

export interface BatcherOptions<Call, Result> {
  /** Only calls with the same group go into one statement. */
  groupOf(call: Call): string;
  /** How much a call adds to its statement. */
  sizeOf(call: Call): number;
  /** Sends one batch; returns results in the order of the calls. */
  send(calls: Call[]): Promise<Result[]>;
  /** The largest batch, in calls. */
  maxCalls: number;
  /** A batch that has reached this size takes no further call. */
  maxSize: number;
  /** How many statements may be in flight. Two keep Postgres busy while Node prepares the next. */
  lanes: number;
}

interface PendingCall<Call, Result> {
  call: Call;
  resolve(result: Result): void;
  reject(reason: unknown): void;
}

export function createBatcher<Call, Result>(options: BatcherOptions<Call, Result>): (call: Call) => Promise<Result> {
  const groups = new Map<string, PendingCall<Call, Result>[]>();
  let inFlight = 0;
  let armed = false;

  function arm(): void {
    if (armed || inFlight >= options.lanes || groups.size === 0) return;
    armed = true;
    // After the callbacks of this event loop turn: their calls join the same batch.
    setImmediate(flush);
  }

  function flush(): void {
    armed = false;
    while (inFlight < options.lanes && groups.size > 0) {
      const [group, calls] = groups.entries().next().value!;
      const batch = take(calls);
      if (calls.length === 0) groups.delete(group);
      inFlight += 1;
      void send(batch);
    }
  }

  function take(calls: PendingCall<Call, Result>[]): PendingCall<Call, Result>[] {
    const max = Math.min(calls.length, options.maxCalls);
    let count = 0;
    for (let size = 0; count < max && size < options.maxSize; count++) size += options.sizeOf(calls[count]!.call);
    return calls.splice(0, count);
  }

  async function send(batch: PendingCall<Call, Result>[]): Promise<void> {
    try {
      const results = await options.send(batch.map(({ call }) => call));
      for (const [index, { resolve }] of batch.entries()) resolve(results[index]!);
    } catch (error) {
      for (const { reject } of batch) reject(error);
    } finally {
      inFlight -= 1;
      arm();
    }
  }

  return (call) =>
    new Promise((resolve, reject) => {
      const group = options.groupOf(call);
      const pending = { call, resolve, reject };
      const calls = groups.get(group);
      if (calls) calls.push(pending);
      else groups.set(group, [pending]);
      arm();
    });
}
