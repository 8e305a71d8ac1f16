// The commands that are processes of their own or look after the database: dev, server, worker, migrate, doctor, watchdog, init, completion.
import { type Command, databaseFlags, doorFlags } from "./command.ts";

const config = "<file> instead of ./stillwake.config.{ts,mts,js,mjs}";
const pipelines = "<path> a module or a directory of modules that export implement(…); may be given again";
const store = "<url> artifacts: file:<dir> or s3://<bucket>/<prefix>?endpoint=<url> (default: STILLWAKE_STORE)";
const directUrl = "<url> past the pooler (default: STILLWAKE_DIRECT_URL, or the database itself)";
const json = "for programs";

export const processCommands: readonly Command[] = [
  {
    name: "init",
    group: "Start",
    summary: "make a starter project that runs",
    usage: ["[dir]"],
    words: [0, 1],
    flags: { force: "also in a folder that is not empty; what is there is kept" },
    examples: [
      ["init my-pipelines", "then: cd my-pipelines && npm install && npm start"],
      ["init", "in this folder, which must be empty"],
    ],
    load: async () => (await import("./init.ts")).initCommand,
  },
  {
    name: "dev",
    group: "Start",
    summary: "start Postgres, a worker, the API and the dashboard, all on this machine",
    usage: [""],
    words: [0, 0],
    flags: {
      pipelines,
      slots: "<n> jobs at once (default: 4)",
      port: "<port> the first to try (default: STILLWAKE_PORT or 4700)",
      enqueue: "<pipeline> enqueue one job at the start and show it to its end; one that has not ended is shown again",
      input: "<json> its input: JSON, or @file",
      ...databaseFlags,
      url: "<url> a database of yours instead of an embedded Postgres",
      config,
    },
    examples: [
      ["dev", "with those of stillwake.config.mjs, or with two pipelines to look at"],
      ["dev --pipelines ./pipelines", "with yours"],
      ["dev --pipelines ./pipelines --enqueue digest --input @sample.json", "and with one job before your eyes"],
    ],
    load: async () => (await import("./dev.ts")).devCommand,
  },
  {
    name: "worker",
    group: "Run",
    summary: "run the jobs of a pool",
    usage: [""],
    words: [0, 0],
    flags: {
      pipelines,
      pool: '<name> whose jobs (default: "default")',
      slots: "<n> jobs at once (default: one per processor)",
      "idle-exit": "<time> end after so long without a job, such as 60s",
      drain: "work until nothing is left, then end",
      once: "do one job, then end",
      "drain-limit": "<time> how long SIGTERM waits for jobs (default: 25s); a second signal hurries",
      lease: "<time> how long a claim lasts without a beat (default: 15s)",
      grace: "<time> from being told to stop to being killed (default: 5s)",
      "cancel-grace": "<time> the same for a cancelled job (default: 500ms, never more than the grace)",
      ...databaseFlags,
      "direct-url": directUrl,
      store,
      scratch: "<dir> where attempts have their directories",
      name: "<name> how it is called in the database and in logs",
      "metrics-port": "<port> /metrics, /health and POST /wake on 127.0.0.1",
      "metrics-host": "<host> another address for them, which opens them to others",
      "log-level": "<level> trace, debug, info (default), warn, error",
      config,
    },
    examples: [
      ["worker --pipelines ./pipelines", "until it is told to stop"],
      ["worker --pipelines ./pipelines --pool scan --slots 4 --idle-exit 60s", "on a machine that may go"],
      ["worker --pipelines ./pipelines --drain", "in a cron or a CI"],
    ],
    load: async () => {
      const { workerCommand } = await import("./worker.ts");
      return ({ flags }) => workerCommand(flags);
    },
  },
  {
    name: "server",
    group: "Run",
    summary: "serve the HTTP API",
    usage: [""],
    words: [0, 0],
    flags: {
      port: "<port> (default: STILLWAKE_PORT or 4700; 0 takes any free one)",
      host: "<host> the address to listen at (default: STILLWAKE_HOST or 127.0.0.1)",
      origin: "<origin> pages of it may call the API, such as https://app.example.com; may be given again",
      "no-auth": "everybody who reaches it may do everything; on addresses of this machine alone",
      ...databaseFlags,
      "direct-url": directUrl,
      store,
      verbose: "with the stack of what goes wrong inside",
    },
    examples: [
      ["server", "at http://127.0.0.1:4700, for those who have a token: see stillwake tokens"],
      ["server --host 0.0.0.0 --port 8080", "for others, behind a proxy that speaks TLS"],
      ["server --no-auth", "for yourself"],
    ],
    load: async () => (await import("./server.ts")).serverCommand,
  },
  {
    name: "migrate",
    group: "Run",
    summary: "bring the tables and functions into the database, or up to date",
    usage: ["", "--print"],
    words: [0, 0],
    flags: {
      print: "print the SQL instead, to apply it yourself",
      realtime: "let Supabase Realtime read the log, each tenant its own",
      "realtime-claim": "<name> the claim of the JWT that names the tenant",
      ...databaseFlags,
      url: "<url> the database, as its owner (default: STILLWAKE_DATABASE_URL or DATABASE_URL)",
    },
    examples: [
      ["migrate --url postgres://owner@localhost/app", "as the owner of the database"],
      ["migrate --print > stillwake.sql", "for whoever applies SQL by other means"],
    ],
    load: async () => (await import("./migrate.ts")).migrateCommand,
  },
  {
    name: "doctor",
    group: "Run",
    summary: "check the database and say what is wrong and how to mend it",
    usage: [""],
    words: [0, 0],
    flags: { ...databaseFlags, json },
    examples: [
      ["doctor", "exits 1 when something is wrong"],
      ["doctor --json", "for programs"],
    ],
    load: async () => (await import("./doctor.ts")).doctorCommand,
  },
  {
    name: "watchdog",
    group: "Run",
    summary: "recover, expire, prepare partitions and prune, once; from cron, every minute",
    usage: [""],
    words: [0, 0],
    flags: { ...doorFlags, json },
    examples: [
      ["watchdog", "from cron: * * * * * DATABASE_URL=postgres://app@localhost/app stillwake watchdog"],
      ["watchdog --server https://jobs.example.com", "where only the server is in reach; a worker's token will do"],
    ],
    load: async () => (await import("./watchdog.ts")).watchdogCommand,
  },
  {
    name: "completion",
    group: "Start",
    summary: "print what your shell needs to complete these commands",
    usage: ["bash|zsh|fish"],
    words: [1, 1],
    acts: ["bash", "zsh", "fish"],
    flags: {},
    examples: [
      ["completion bash > ~/.local/share/bash-completion/completions/stillwake", "for bash"],
      ['completion zsh > "$fpath[1]/_stillwake"', "for zsh"],
      ["completion fish > ~/.config/fish/completions/stillwake.fish", "for fish"],
    ],
    load: async () => (await import("./completion.ts")).completionCommand,
  },
];
