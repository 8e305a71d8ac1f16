// The files of the starter: a pipeline in TypeScript, its contract, its test and a script that enqueues a job.

export interface Layout {
  /** Where the code is: "" for the project directory itself, or a folder of it with a final slash. */
  folder: string;
  /** Whether .ts files of the package are CommonJS. Then the folder gets a package.json that makes its own files modules. */
  isCommonJs: boolean;
  /** The commands that run the scripts of package.json. */
  commands: { dev: string; test: string; enqueue: string; types: string };
  title: string;
  /** Whether the project's TypeScript is the one that `init` adds: it then knows all options used here. */
  newestTypescript: boolean;
}

/** Paths, relative to the project directory, and contents. */
export function starterFiles(layout: Layout): Record<string, string> {
  const { folder, isCommonJs } = layout;
  return {
    [configFile(layout)]: config(folder),
    [`${folder}contracts.ts`]: contracts,
    [`${folder}pipelines/words.ts`]: words,
    [testFile(layout)]: test,
    [`${folder}enqueue.ts`]: enqueue(layout),
    ...(isCommonJs && { [`${folder}package.json`]: toJson({ private: true, type: "module" }) }),
    [`${folder}sample.json`]: toJson(sample),
    [`${folder}tsconfig.json`]: toJson(tsconfig(layout)),
    [`${folder}README.md`]: readme(layout),
  };
}

/** In a folder of an existing project it is named so that the project's own test runner does not take it. */
export function testFile({ folder }: Layout, name = "words"): string {
  return `${folder}test/${name}.${folder ? "" : "test."}ts`;
}

function configFile({ isCommonJs }: Layout): string {
  return `stillwake.config.${isCommonJs ? "mts" : "ts"}`;
}

export function toJson(value: unknown, indent: string | number = 2): string {
  return `${JSON.stringify(value, null, indent)}\n`;
}

/** Written this way so that tools do not take these lines for imports of this file. */
const importOf = (names: string, module: string) => `import ${names} from ${JSON.stringify(module)};`;

const config = (folder: string) => `${importOf("{ defineConfig }", "stillwake")}

export default defineConfig({
  // Modules, or directories of modules, that export the results of implement().
  pipelines: "./${folder}pipelines",
});
`;

const contracts = `// The contracts of the pipelines, shared by the application and the workers.
${importOf("{ pipeline }", "stillwake/contract")}
${importOf("{ z }", "zod")}

export const words = pipeline("words", {
  input: z.object({ title: z.string(), text: z.string(), pauseMs: z.number().min(0).max(60_000).optional() }),
  retry: { attempts: 3 },
});
`;

const words = `// Ordinary code around named steps. The result of each step is saved: after a crash the job resumes at the next step.
${importOf("{ setTimeout as delay }", "node:timers/promises")}
${importOf("{ implement }", "stillwake/worker")}
${importOf("{ words }", "../contracts.ts")}

export default implement(words, async (job, { title, text, pauseMs = 0 }) => {
  const sentences = await job.step("sentences", { start: \`Reading "\${title}"...\`, end: "Read" }, () =>
    text.split(/(?<=[.!?])\\s+/),
  );

  const counts = new Map<string, number>();
  for (const [index, sentence] of sentences.entries()) {
    const position = \`\${index + 1} of \${sentences.length}\`;
    // One step per sentence: a counted sentence is never counted again.
    const found = await job.step(\`sentence \${index + 1}\`, { end: \`Counted sentence \${position}\` }, async () => {
      await delay(pauseMs); // Slows the demo down.
      return sentence.toLowerCase().match(/[\\p{L}']+/gu) ?? [];
    });
    for (const word of found) counts.set(word, (counts.get(word) ?? 0) + 1);
    job.progress({ done: index + 1, total: sentences.length }, sentence);
  }
  const sorted = [...counts].sort((a, b) => b[1] - a[1]);

  // If an optional step fails, the job completes without its result and lists the step as missing.
  const longest = await job.optional("longest", () => sorted.map(([word]) => word).sort((a, b) => b.length - a.length)[0]);

  await job.artifact("words.json", () => JSON.stringify(Object.fromEntries(sorted), null, 2));
  return { sentences: sentences.length, words: sorted.length, most: sorted[0]?.[0], longest };
});
`;

const test = `// Runs the pipeline with the real engine, on a real Postgres: once without trouble, once with a crash after the first sentence.
${importOf("assert", "node:assert/strict")}
${importOf("{ after, test }", "node:test")}
${importOf("{ migrate }", "stillwake")}
${importOf("{ startPostgres }", "stillwake/postgres")}
${importOf("{ runJob, testDatabase }", "stillwake/testing")}
${importOf("words", "../pipelines/words.ts")}

const postgres = await startPostgres({ dir: ".stillwake/test" });
const database = await testDatabase({ server: postgres.url });
await migrate({ url: database.url });
after(async () => {
  await database.drop();
  await postgres.stop();
});

const input = { title: "Two sentences", text: "The tide turns. The boats leave the harbour." };
const options = { url: database.url, worker: { store: "file:.stillwake/test-artifacts" } };

test("counts the words", async () => {
  const { job } = await runJob(words, input, options);
  assert.equal(job.state, "completed");
  assert.deepEqual(job.output, { sentences: 2, words: 6, most: "the", longest: "harbour" });
});

test("does not count a sentence again after a crash", async () => {
  const { job, runs, attempts } = await runJob(words, input, { ...options, crashAfter: "sentence 1" });
  assert.equal(job.state, "completed");
  assert.equal(attempts, 2);
  assert.equal(runs["sentence 1"], 1);
});
`;

const enqueue = ({
  commands,
}: Layout) => `// ${commands.enqueue}, while ${commands.dev} is running: how your application enqueues a job.
${importOf("{ createStillwake }", "stillwake")}
${importOf("{ startPostgres }", "stillwake/postgres")}
${importOf("{ words }", "./contracts.ts")}

// Without DATABASE_URL: the Postgres that ${commands.dev} runs.
const postgres = process.env.DATABASE_URL ? undefined : await startPostgres({ dir: ".stillwake/postgres" });
const sw = createStillwake({ url: process.env.DATABASE_URL ?? postgres?.url ?? "" });

const { id } = await sw.enqueue(words, { title: "Enqueued by hand", text: "One sentence. And another one!" });
console.log(\`enqueued job \${id}\`);
const job = await sw.wait(id, { timeout: "1m" });
console.log(\`\${job.state}: \${JSON.stringify(job.output)}\`);

await sw.close();
await postgres?.stop();
`;

const sample = {
  title: "The harbour at night",
  text: "The harbour is quiet. Twelve boats are in port. A lamp is switched on at the pier. The first crew arrives! It loads ice, nets and fuel. The engine of the first boat starts. Gulls follow it out of the port. The other boats leave one after the other. The tide turns at four. Two boats come back early. Boxes of fish are unloaded. By noon all boats are back.",
  pauseMs: 1000,
};

function tsconfig(layout: Layout) {
  const { folder, newestTypescript } = layout;
  return {
    compilerOptions: {
      target: "es2023",
      module: "nodenext",
      types: ["node"],
      strict: true,
      noEmit: true,
      // As Node runs it: types are removed, and nothing else changes.
      allowImportingTsExtensions: true,
      verbatimModuleSyntax: true,
      ...(newestTypescript && { erasableSyntaxOnly: true }),
    },
    ...(folder && { include: [".", `../${configFile(layout)}`] }),
  };
}

function readme(layout: Layout): string {
  const { title, folder, commands } = layout;
  return `# ${title}

Durable pipelines on Postgres, with Stillwake.

\`\`\`sh
${column([
  [commands.dev, "a real Postgres, a worker, the API and the dashboard at http://127.0.0.1:4700, and one job"],
  [commands.enqueue, "in another terminal: enqueues a job from code"],
  ["npx stillwake jobs", "in another terminal: lists the jobs"],
  [commands.test, "the tests of the pipeline"],
  [commands.types, "the type check"],
])}
\`\`\`

| | |
|---|---|
| \`${folder}contracts.ts\` | the names of the pipelines and the schemas of their inputs |
| \`${folder}pipelines/\` | the code of each pipeline: steps whose results are saved |
| \`${folder}test/\` | the tests of the pipelines |
| \`${folder}enqueue.ts\` | how your application enqueues a job |
| \`${folder}sample.json\` | the input of the job that \`${commands.dev}\` enqueues |
| \`${configFile(layout)}\` | the configuration of the workers |
| \`.env\` | settings such as \`DATABASE_URL\`, if there is one; a variable that is already set has precedence |
| \`.stillwake/\` | the data of \`${commands.dev}\`: Postgres and artifacts. Delete it to start over |

Change a pipeline while \`${commands.dev}\` is running: the next job runs the new code.

Try this: while the job is running, kill everything from another terminal and start it again.

\`\`\`sh
kill -9 $(node -p "require('./.stillwake/dev.json').pid")
${commands.dev}
\`\`\`

The same job resumes at the sentence where it was, after up to 15 seconds: until then the lease of the dead worker is
valid. After Ctrl-C, which releases the job, the next start resumes it at once.

With your own Postgres:

\`\`\`sh
export DATABASE_URL=postgres://owner@localhost/app
npx stillwake migrate
npx stillwake worker                  # as many as you need
npx stillwake enqueue words @${folder}sample.json --follow
npx stillwake tokens create --name me --role admin
npx stillwake server                  # the HTTP API and the dashboard
\`\`\`
`;
}

/** Commands with aligned comments. */
function column(rows: readonly (readonly [command: string, comment: string])[]): string {
  const width = Math.max(...rows.map(([command]) => command.length));
  return rows.map(([command, comment]) => `${command.padEnd(width)}  # ${comment}`).join("\n");
}
