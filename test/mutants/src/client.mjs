// Mutants of src/client.
export const file = "src/client/read-token.ts";
export const killedBy = "test/server/tokens.test.ts";

export const mutants = [
  {
    name: "the database stores the token itself",
    file: "src/client/tokens.ts",
    old: "prefix: token.slice(0, PREFIX.length + 4)",
    new: "prefix: token",
  },
  {
    name: "an expired read token is accepted",
    old: `  if (!(expiresAt.getTime() > Date.now())) return undefined;
`,
    new: "",
  },
  {
    name: "a read token with any signature is accepted",
    old: `  if (!valid) return undefined;
`,
    new: "",
  },
  {
    name: "a read token signed with the previous secret is refused",
    old: "const valid = secrets.some(",
    new: "const valid = secrets.slice(0, 1).some(",
  },
  {
    name: "the poke is sent before the commit",
    killedBy: "test/orchestrator/poke.test.ts",
    only: "after the commit",
    file: "src/client/enqueue.ts",
    edits: [
      {
        old: "const id = send ?",
        new: "if (!send) await this.#poker?.poke();\n    const id = send ?",
      },
      {
        old: `    else await this.#poker?.poke();
    return { id,`,
        new: "    return { id,",
      },
    ],
  },
  {
    name: "a failed poke fails the enqueue",
    killedBy: "test/orchestrator/poke.test.ts",
    only: "fails no enqueue",
    file: "src/client/poke.ts",
    old: `      .catch(() => {})
`,
    new: "",
  },
  {
    name: "an enqueue waits for the response to its poke",
    killedBy: "test/orchestrator/poke.test.ts",
    only: "without a response delays",
    file: "src/client/poke.ts",
    old: "withTimeout(sent, this.#limitMs, undefined)",
    new: "withTimeout(sent, this.#limitMs * 100, undefined)",
  },
];
