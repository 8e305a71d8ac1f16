// Mutants of src/live.
export const file = "src/live/follower.ts";
export const killedBy = "test/live/follow.test.ts";

export const mutants = [
  {
    name: "a follower that is far behind reads no pages",
    only: "that is behind the buffer",
    old: "if (this.#cursor < job.from && !job.gone)",
    new: "if (false as boolean)",
  },
  {
    name: "missing lines are skipped without notice",
    only: "receives a gap",
    old: `    if (line.seq > this.#cursor + 1n || this.#beyond !== undefined) events.push(this.#gap(line.seq));
`,
    new: "",
  },
  {
    name: "the end of a job is sent before its last lines",
    only: "of an ended job",
    old: "if (job.end && this.#isAtHead)",
    new: "if (job.end)",
  },
  {
    name: "a reconnected feed reader does not poll once",
    killedBy: "test/live/live.test.ts",
    only: "reads again after each reconnect",
    file: "src/live/feed-reader.ts",
    old: "onReady: () => this.#refreshAll(true)",
    new: "onReady: () => {}",
  },
  {
    name: "a feed reader continues without followers",
    killedBy: "test/live/live.test.ts",
    only: "there is no statement",
    file: "src/live/feed-reader.ts",
    old: `      this.#stop();
      this.#jobs.clear();`,
    new: "      this.#jobs.clear();",
  },
  {
    name: "a stream starts with an outdated state of the job",
    killedBy: "test/live/stream.test.ts",
    only: "continues for a client that has received the end",
    file: "src/live/job-buffer.ts",
    old: "const wanted = this.startedReads + 1;",
    new: "const wanted = 1;",
  },
];
