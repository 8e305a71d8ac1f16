// Calls of the same moment share one statement, and so one commit; each still resolves only when its own row is durable. While a
// statement is in flight the next calls gather, so the busier it gets the larger the batches become, with no timer and no added delay.

export interface SharedCommitOptions<Call, Answer> {
  /** Only calls with the same group go into one statement. */
  groupOf(call: Call): string;
  /** How much a call adds to its statement. */
  sizeOf(call: Call): number;
  /** Sends one batch; answers in the order of the calls. */
  send(calls: Call[]): Promise<Answer[]>;
  /** The largest batch, in calls. */
  most: number;
  /** A batch that has grown to this size takes no further call. */
  mostSize: number;
  /** How many statements may be in flight. Two keep Postgres busy while Node prepares the next. */
  lanes: number;
}

interface Waiting<Call, Answer> {
  call: Call;
  resolve(answer: Answer): void;
  reject(reason: unknown): void;
}

export function sharedCommit<Call, Answer>(
  options: SharedCommitOptions<Call, Answer>,
): (call: Call) => Promise<Answer> {
  const groups = new Map<string, Waiting<Call, Answer>[]>();
  let inFlight = 0;
  let armed = false;

  function arm(): void {
    if (armed || inFlight >= options.lanes || groups.size === 0) return;
    armed = true;
    // After the callbacks of this turn: everything they ask for joins the same batch.
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

  function take(calls: Waiting<Call, Answer>[]): Waiting<Call, Answer>[] {
    const most = Math.min(calls.length, options.most);
    let count = 0;
    for (let size = 0; count < most && size < options.mostSize; count++) size += options.sizeOf(calls[count]!.call);
    return calls.splice(0, count);
  }

  async function send(batch: Waiting<Call, Answer>[]): Promise<void> {
    try {
      const answers = await options.send(batch.map(({ call }) => call));
      for (const [index, { resolve }] of batch.entries()) resolve(answers[index]!);
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
      const waiting = { call, resolve, reject };
      const calls = groups.get(group);
      if (calls) calls.push(waiting);
      else groups.set(group, [waiting]);
      arm();
    });
}
