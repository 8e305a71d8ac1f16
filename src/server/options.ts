// What a server is made with.

import type { PokeTarget } from "../client/poke.ts";
import type { ArtifactSource } from "../client/reader.ts";
import type { DatabaseOptions } from "../db/database.ts";
import type { Duration } from "../time.ts";
import type { Identity } from "./http/access.ts";

export interface ServerOptions extends DatabaseOptions {
  /** Who is told of work that comes in here, where machines are started by another process: see the client's. */
  poke?: PokeTarget;
  /** Past the pooler, for hints of new log lines; the database's own without one. */
  directUrl?: string;
  /** To download artifacts: what openStore() of stillwake/worker returns. */
  store?: ArtifactSource;
  /** Signs and checks read tokens, 32 characters at least. Of several the first signs, all are accepted. Without one there are none. */
  secret?: string | readonly string[];
  /** "tokens": who comes in needs one. "none": everybody who reaches it may do everything; on this machine's own addresses only. Default "tokens". */
  auth?: "tokens" | "none";
  /** Asked first, where the server is mounted in an application with sign-in of its own. Undefined: look for a token. */
  authenticate?: (request: Request) => Identity | undefined | Promise<Identity | undefined>;
  /** Where a request comes from, for limits and the record of acts: behind a proxy, what the proxy says. Default: the other end of the connection. */
  clientAddress?: (request: Request) => string | null;
  /** Pages of other origins that may call it, such as "https://app.example.com". Default: none. */
  origins?: readonly string[];
  /** Where it is mounted, such as "/stillwake": for the addresses in the dashboard's pages, and for its cookie, which other paths do not get. Default "/". */
  path?: string;
  /** Requests of one token: so many a second in the long run, so many at once. Default 100 and 400. */
  rate?: { perSecond: number; burst: number };
  /**
   * Streams that are open at once: of one token, and in all. Default 100 and 10,000. `recheck`: how often it is looked whether the token is still
   * good, which another server may have taken back. Default "60s".
   */
  streams?: { perToken?: number; total?: number; recheck?: Duration };
  /** Told when there may be work for new machines: POST /v1/poke with its pool, and POST /v1/watchdog after it has done its own. An orchestrator in this process listens. */
  onPoke?: (pool?: string) => void;
  /** Told of what went wrong inside, with what the caller was not told. Default: to the standard error output. */
  onError?: (error: unknown, request: { method: string; path: string }) => void;
}
