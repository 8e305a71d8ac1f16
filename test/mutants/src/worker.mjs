// Mutants of src/worker.
export const file = "src/worker/redact/redact.ts";
export const killedBy = "test/security/sealed.test.ts";

export const mutants = [
  {
    name: "an attempt is settled before the result of its step is saved",
    killedBy: "test/attempt/step-limits.test.ts",
    only: "a finished step is saved and not run again, although its timeout passes while the database is unavailable",
    edits: [
      {
        file: "src/worker/keeper/keeper.ts",
        old: "const saves = leased.pendingSaves();",
        new: "const saves = undefined;",
      },
      {
        file: "src/worker/attempt/steps.ts",
        old: "if (options.timeout !== undefined) port.setStepTimeout(name, null);",
        new: "",
      },
    ],
  },
  {
    name: "a rejected settlement is sent again with its batch for ever",
    killedBy: "test/worker/rejected-settlement.test.ts",
    only: "fails with a clear code",
    file: "src/worker/keeper/claim-loop.ts",
    old: "const separately = isRejection(error) || (finished.length > 1 && this.#failures >= MAX_FAILED_ROUNDS);",
    new: "const separately = error instanceof InvalidInput;",
  },
  {
    name: "a settlement that is rejected in every form is forgotten",
    killedBy: "test/worker/rejected-settlement.test.ts",
    only: "is retried alone",
    file: "src/worker/keeper/claim-loop.ts",
    old: "this.#rejected.set(attempt, setTimeout(retry, backoffMs(tries, 1000, MAX_REJECTED_PAUSE_MS)));",
    new: "void retry;",
  },
  {
    name: "a worker's claim does not name its leases",
    killedBy: "test/worker/network.test.ts",
    only: "do not recover its own job",
    file: "src/worker/keeper/claim-loop.ts",
    old: "leaseId, held: this.held }",
    new: "leaseId }",
  },
  {
    name: "a worker's recovery does not name its leases",
    killedBy: "test/worker/network.test.ts",
    only: "do not recover its own job",
    file: "src/worker/keeper/idle-poll.ts",
    old: "recoverStale(database, claimable.pool, held())",
    new: "recoverStale(database, claimable.pool, [])",
  },
  {
    name: "a worker without a free slot runs no schedules",
    killedBy: "test/flow/schedules-worker.test.ts",
    only: "creates the jobs of occurrences in time",
    file: "src/worker/keeper/keeper.ts",
    old: `    this.#scheduleTicker.startWhenFull();
`,
    new: "",
  },
  {
    name: "sealed inputs of child jobs are stored as plain text",
    file: "src/worker/keeper/unseal.ts",
    old: "if (!sealed?.length) return inputs;",
    new: "if (sealed) return inputs;",
  },
  {
    name: "unsealed values are not registered for redaction",
    file: "src/worker/keeper/unseal.ts",
    old: "secrets: readPaths(input, paths)",
    new: "secrets: []",
  },
  {
    name: "the output of a job is not redacted",
    old: "outcome.output = this.redactValue(outcome.output);",
    new: "this.redactValue(outcome.output);",
  },
  {
    name: "a secret that spans two lines is not redacted",
    killedBy: "test/security/redact.test.ts",
    old: ": this.#redactParts(text, minEdgeLength, minEdgeLength);",
    new: ": text;",
  },
  {
    name: "the rest of a truncated secret is not redacted",
    killedBy: "test/security/redact.test.ts",
    old: "index > 0 ? minLength : never",
    new: "never",
  },
  {
    name: "the reason of an open breaker is not redacted",
    file: "src/worker/attempt/limits-and-breakers.ts",
    old: "this.#attempt.redactor.redact(String((error as Error)?.message ?? error))",
    new: "String((error as Error)?.message ?? error)",
  },
  {
    name: "a batch that was saved by another try adds its result again",
    killedBy: "test/attempt/each-reduce.test.ts",
    only: "takes over the saved value",
    file: "src/worker/attempt/each.ts",
    old: 'if ((await port.savePosition(call)) === "kept") await this.#findSaved(call);',
    new: "await port.savePosition(call);",
  },
  {
    name: "parallel batches reduce the same value",
    killedBy: "test/attempt/each-reduce.test.ts",
    only: "batches in parallel",
    file: "src/worker/attempt/each.ts",
    old: "    await before;\n",
    new: "",
  },
  {
    name: "the log lines of a batch belong to a step of its own",
    killedBy: "test/attempt/each.test.ts",
    only: "as lines of the list",
    file: "src/worker/attempt/step-handle.ts",
    old: "return this.#list;",
    new: "return this.name;",
  },
  {
    name: "an optional step that failed runs again after a wait",
    killedBy: "test/attempt/steps.test.ts",
    only: "is not tried again after a wait",
    file: "src/worker/attempt/steps.ts",
    old: "await this.#host.port.saveCheckpoint(name, FAILED, 0);",
    new: "",
  },
  {
    name: "lines after the first step that runs count as repeated",
    killedBy: "test/attempt/steps.test.ts",
    only: "every line after a step has run",
    file: "src/worker/attempt/steps.ts",
    old: "this.hasRun = true;",
    new: "",
  },
];
