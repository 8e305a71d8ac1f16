// The artifacts of a job as one attempt at it sees them: made here, found in the store, or fetched from there to be read. The keeper holds the store;
// what is asked of it goes through the port.
import fs from "node:fs/promises";
import { checkArtifactName } from "../../artifacts/names.ts";
import type { ArtifactRow } from "../../db/calls/reads.ts";
import type { Assignment, Port } from "../runner/port.ts";
import type { Journal } from "./log-writer.ts";
import {
  type Artifact,
  type ArtifactProducer,
  artifactOf,
  produce,
  putInPlace,
  unlessAborted,
} from "./produce-artifact.ts";

export interface JobArtifactsHost {
  readonly signal: AbortSignal;
  scratch(): Promise<string>;
  /** Throws when the attempt has ended or was told to stop. */
  check(): void;
}

/** A file that holds an artifact, and what it looked like when it did. */
interface Copy {
  path: string;
  version: string | undefined;
}

export class JobArtifacts {
  readonly #port: Port;
  readonly #journal: Journal;
  readonly #assignment: Assignment;
  readonly #host: JobArtifactsHost;
  #rows: Promise<Map<string, ArtifactRow>> | undefined;
  readonly #copies = new Map<string, Copy>();
  readonly #fetching = new Map<string, Promise<string>>();

  constructor(port: Port, journal: Journal, assignment: Assignment, host: JobArtifactsHost) {
    this.#port = port;
    this.#journal = journal;
    this.#assignment = assignment;
    this.#host = host;
  }

  async make(given: string, producer: ArtifactProducer): Promise<Artifact> {
    const name = checkArtifactName(given);
    this.#journal.refuseName(name, "an artifact");
    const port = this.#port;
    // A job that was never claimed before has none.
    this.#rows ??= (this.#assignment.epoch === "1" ? Promise.resolve([]) : port.artifacts()).then(
      (rows) => new Map(rows.map((row) => [row.name, row])),
    );
    const found = (await this.#rows).get(name);
    if (found && (await port.artifactIsThere({ key: found.key, size: Number(found.size), sha256: found.sha256 }))) {
      return artifactOf(found, true);
    }
    await port.leased();
    const made = await produce(await this.#host.scratch(), name, producer, this.#host.signal);
    // Seen before the keeper reads it: what it accepts is what this version holds.
    const version = await versionOf(made.path);
    this.#host.check();
    const row = await port.storeArtifact({ name, ...made });
    (await this.#rows).set(name, row);
    this.#copies.set(name, { path: made.path, version });
    return artifactOf(row, false);
  }

  /** Where its content stands in the attempt's directory. Those who ask at once or again are given the same file, as long as it is the same. */
  async file(given: string): Promise<string> {
    const name = checkArtifactName(given);
    let fetching = this.#fetching.get(name);
    if (!fetching) {
      fetching = this.#standing(name).finally(() => this.#fetching.delete(name));
      this.#fetching.set(name, fetching);
    }
    return fetching;
  }

  async #standing(name: string): Promise<string> {
    const copy = this.#copies.get(name);
    if (copy?.version && (await versionOf(copy.path)) === copy.version) return copy.path;
    const scratch = await this.#host.scratch();
    const path = await unlessAborted(
      async () => putInPlace(scratch, name, await this.#port.fetchArtifact(name)),
      this.#host.signal,
    );
    this.#copies.set(name, { path, version: await versionOf(path) });
    return path;
  }
}

/** User code may write in its directory: a file that is not the very same any more is not given out as the artifact. */
async function versionOf(path: string): Promise<string | undefined> {
  const stats = await fs.lstat(path, { bigint: true }).catch(() => undefined);
  if (!stats?.isFile()) return undefined;
  return [stats.dev, stats.ino, stats.size, stats.mtimeNs, stats.ctimeNs].join();
}
