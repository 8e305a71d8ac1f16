// Starts a system for `npm start` without a network: its tables, its page, and for some a git server with its sample repository.
import fs from "node:fs/promises";
import path from "node:path";
import pg from "pg";
import type { DevPlace, Stillwake } from "stillwake";
import { type GitServer, type GitServerOptions, serveSample } from "./git-server.ts";

/** A running system. */
export interface Application {
  /** Environment of the pipeline code. */
  env: Record<string, string>;
  line: string;
  fetch(request: Request): Response | Promise<Response>;
  close(): Promise<void>;
}

export interface DemoSystem {
  name: string;
  /** PATH to find git. */
  toolPath: string;
  migrate(pool: pg.Pool): Promise<void>;
  loginFor(pool: pg.Pool, login: string): Promise<string>;
  /** Without it no git server is started. */
  makeSampleRepository?(options: GitServerOptions): Promise<void>;
  /** `hasSample`: git is installed, and the sample repository is served. */
  createApp(options: {
    pool: pg.Pool;
    stillwake: Stillwake;
    live: (request: Request) => Promise<Response>;
    base: string;
    hasSample: boolean;
    home: string;
  }): Pick<Application, "fetch"> | Promise<Pick<Application, "fetch">>;
}

/** What is left to the system: the environment of its pipeline code. */
export interface StartedDemo extends Pick<Application, "fetch" | "close"> {
  /** The system's folder in the data directory. */
  home: string;
  /** The database URL of the pipeline code. */
  login: string;
  /** Undefined if git is not installed or not needed. */
  git: GitServer | undefined;
}

export async function startDemo(dev: DevPlace & { base: string }, system: DemoSystem): Promise<StartedDemo> {
  const home = path.join(dev.dir, system.name);
  const root = path.join(home, "repositories");
  await fs.mkdir(system.makeSampleRepository ? root : home, { recursive: true });
  const pool = new pg.Pool({ connectionString: dev.url, max: 4, idleTimeoutMillis: 5000 });
  pool.on("error", () => {});
  await system.migrate(pool);
  const login = await system.loginFor(pool, `${system.name}_dev`);
  const { makeSampleRepository } = system;
  const git = makeSampleRepository && (await serveSample({ root, toolPath: system.toolPath }, makeSampleRepository));
  const app = await system.createApp({
    pool,
    stillwake: dev.stillwake,
    live: async (request) => dev.fetch(request),
    base: dev.base,
    hasSample: git !== undefined,
    home,
  });
  return {
    home,
    login,
    git,
    fetch: (request) => app.fetch(request),
    async close() {
      await git?.close();
      await pool.end();
    },
  };
}
