// job.artifact() and job.artifactFile(): artifacts are produced in this attempt, found in the store, or fetched from it
// for reading. The keeper accesses the store; the attempt calls it through the port.
import fs from "node:fs/promises";
import { checkArtifactName } from "../../artifacts/names.ts";
import type { ArtifactRow } from "../../db/calls/reads.ts";
import type { AttemptState } from "./attempt-state.ts";
import {
  type Artifact,
  type ArtifactProducer,
  moveIntoArtifacts,
  produceArtifact,
  toArtifact,
  unlessAborted,
} from "./produce-artifact.ts";

/** A local copy of an artifact, and the version of the file that is known to have its content. */
interface Copy {
  path: string;
  version: string | undefined;
}

export class JobArtifacts {
  readonly #attempt: AttemptState;
  #rows: Promise<Map<string, ArtifactRow>> | undefined;
  readonly #copies = new Map<string, Copy>();
  readonly #fetching = new Map<string, Promise<string>>();

  constructor(attempt: AttemptState) {
    this.#attempt = attempt;
  }

  async make(rawName: string, producer: ArtifactProducer): Promise<Artifact> {
    const name = checkArtifactName(rawName);
    const { port } = this.#attempt.host;
    this.#attempt.logWriter.rejectSecretInName(name, "an artifact");
    // At epoch 1 the job was never claimed before and has no artifacts.
    this.#rows ??= (this.#attempt.assignment.epoch === "1" ? Promise.resolve([]) : port.artifacts()).then(
      (rows) => new Map(rows.map((row) => [row.name, row])),
    );
    const found = (await this.#rows).get(name);
    if (found && (await port.artifactExists({ key: found.key, size: Number(found.size), sha256: found.sha256 }))) {
      return toArtifact(found, true);
    }
    await port.confirmLease();
    const made = await produceArtifact(await this.#attempt.scratch(), name, producer, this.#attempt.signal);
    // Read before the keeper reads the file, so that this version is the one whose content was stored.
    const version = await versionOf(made.path);
    this.#attempt.check();
    const row = await port.storeArtifact({ name, ...made });
    (await this.#rows).set(name, row);
    this.#copies.set(name, { path: made.path, version });
    return toArtifact(row, false);
  }

  /** A copy in the scratch directory. Concurrent and later calls get the same file while it is unchanged. */
  async file(rawName: string): Promise<string> {
    const name = checkArtifactName(rawName);
    let fetching = this.#fetching.get(name);
    if (!fetching) {
      fetching = this.#findOrFetch(name).finally(() => this.#fetching.delete(name));
      this.#fetching.set(name, fetching);
    }
    return fetching;
  }

  async #findOrFetch(name: string): Promise<string> {
    const copy = this.#copies.get(name);
    if (copy?.version && (await versionOf(copy.path)) === copy.version) return copy.path;
    const scratch = await this.#attempt.scratch();
    const path = await unlessAborted(
      async () => moveIntoArtifacts(scratch, name, await this.#attempt.host.port.fetchArtifact(name)),
      this.#attempt.signal,
    );
    this.#copies.set(name, { path, version: await versionOf(path) });
    return path;
  }
}

/** Identifies the state of a file: a copy that user code has changed is fetched again. */
async function versionOf(path: string): Promise<string | undefined> {
  const stats = await fs.lstat(path, { bigint: true }).catch(() => undefined);
  if (!stats?.isFile()) return undefined;
  return [stats.dev, stats.ino, stats.size, stats.mtimeNs, stats.ctimeNs].join();
}
