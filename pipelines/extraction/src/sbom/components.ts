// What a CycloneDX bill of materials says, as dependencies: which there are, and which of them a manifest of the repository names itself. The file is
// a tool's work on a stranger's repository: every value is checked, every text and list has an end.
import type { Dependency } from "../model.ts";
import { type Fields, fieldsOf, objectsIn, packageUrlOf, textOf, textsIn } from "../untrusted.ts";
import { elementsOf, NotJson } from "./elements.ts";

export interface Bom {
  /** One for each package URL, sorted by it. */
  dependencies: Dependency[];
  /** Components that have no package URL, so that nobody could look anything up for them. */
  unnamed: number;
}

/** Of components, and of edges between them. The file itself is at most 256 MB (sbom.ts). */
const MAX_COMPONENTS = 250_000;
const MAX_EDGES = 5_000_000;
const MAX_REF = 5000;

export async function* dependenciesOf(file: string): AsyncGenerator<Dependency> {
  yield* (await readBom(file)).dependencies;
}

/** Throws what is no bill of materials (NotJson, SyntaxError). Holds the dependencies in memory, and never the file. */
export async function readBom(file: string): Promise<Bom> {
  const graph = new Graph();
  const found = new Map<string, Part>();
  let unnamed = 0;
  let known = false;
  for await (const { key, value } of elementsOf(file, ["metadata", "components", "dependencies"])) {
    const fields = fieldsOf(value);
    if (!fields) continue;
    if (key === "metadata") {
      known = true;
      graph.addRoot(fieldsOf(fields.component), 0);
    } else if (key === "dependencies") {
      graph.addEdges(fields);
    } else {
      const part = partOf(fields);
      const ref = part?.refs[0] ?? refOf(fields);
      const properties = objectsIn(fields.properties, 200);
      if (properties.some(({ name, value }) => name === "cdx:npm:isWorkspace" && value === "true")) {
        if (ref) graph.own.add(ref);
      } else if (!part) unnamed++;
      else {
        if (fields.type === "application") graph.applications.add(ref!);
        graph.parts.add(ref!);
        const { purl } = part.dependency;
        const same = found.get(purl);
        found.set(purl, same ? merged(same, part) : part);
        if (found.size > MAX_COMPONENTS) throw new NotJson(`it has more than ${MAX_COMPONENTS} components`);
      }
    }
  }
  if (!known) throw new NotJson("it is no CycloneDX document");
  const isDirect = graph.judge();
  const dependencies = [...found.values()]
    .filter(({ refs }) => !refs.every((ref) => graph.own.has(ref)))
    .map((part) => ({ ...part.dependency, direct: isDirect(part) }));
  return { dependencies: dependencies.sort((a, b) => (a.purl < b.purl ? -1 : 1)), unnamed };
}

/** A component, and what it is called in the graph. */
interface Part {
  dependency: Dependency;
  refs: string[];
  /**
   * Where it comes from, as far as that says what the graph is worth. Of a yarn.lock cdxgen makes a graph in which the root depends on everything; of a
   * requirements.txt it makes none, and everything in it is named by hand.
   */
  origin: "yarn" | "requirements" | "other";
}

/** The edges, as much of them as it takes: what the repository's own packages depend on, and what anything else does. */
class Graph {
  /** The repository's own packages: nobody's dependencies, and what they name is direct. */
  readonly own = new Set<string>();
  /** What is built here or used as a whole: dependencies, and yet what they name is named here. */
  readonly applications = new Set<string>();
  readonly parts = new Set<string>();
  readonly #needed = new Set<string>();
  /** Of those that were not known as parts when their edges came, because nothing says that components stand before them. */
  readonly #lists = new Map<string, string[]>();
  #edges = 0;

  /** The repository itself, with the packages in it that have manifests of their own. */
  addRoot(fields: Fields | undefined, level: number): void {
    if (!fields || level > 5) return;
    const ref = refOf(fields);
    if (ref) this.own.add(ref);
    for (const inner of objectsIn(fields.components, MAX_COMPONENTS)) this.addRoot(inner, level + 1);
  }

  addEdges(fields: Fields): void {
    const ref = textOf(fields.ref, MAX_REF);
    if (ref === undefined) return;
    const on = textsIn(fields.dependsOn, MAX_COMPONENTS, MAX_REF).filter((other) => other !== ref);
    this.#edges += on.length;
    if (this.#edges > MAX_EDGES) throw new NotJson(`it has more than ${MAX_EDGES} edges`);
    if (!this.parts.has(ref) || this.own.has(ref) || this.applications.has(ref)) this.#lists.set(ref, on);
    else for (const other of on) this.#needed.add(other);
  }

  /** When all of it is read. */
  judge(): (part: Part) => boolean {
    const named = new Set<string>();
    for (const [ref, on] of this.#lists) {
      const here = this.own.has(ref) || this.applications.has(ref);
      for (const other of on) (here ? named : this.#needed).add(other);
    }
    // Kinds of packages that the roots name any of. Of the others there is no graph, and what nobody depends on came from a manifest.
    const charted = new Set([...named].filter((ref) => this.parts.has(ref)).map(kindOf));
    return ({ refs, origin }) =>
      refs.some((ref) => {
        const needed = this.#needed.has(ref);
        if (origin === "yarn") return !needed;
        return named.has(ref) || (!needed && (origin === "requirements" || !charted.has(kindOf(ref))));
      });
  }
}

function refOf(fields: Fields): string | undefined {
  return textOf(fields["bom-ref"], MAX_REF) ?? textOf(fields.purl, MAX_REF);
}

/** "pkg:npm" */
function kindOf(ref: string): string {
  return ref.slice(0, ref.indexOf("/"));
}

const ECOSYSTEMS: Record<string, string> = {
  cargo: "crates.io",
  composer: "Packagist",
  gem: "RubyGems",
  golang: "Go",
  hex: "Hex",
  maven: "Maven",
  nuget: "NuGet",
  pub: "Pub",
  pypi: "PyPI",
};

/** Undefined when it has no package URL, or one that no package has. */
function partOf(fields: Fields): Part | undefined {
  const purl = packageUrlOf(fields.purl);
  const type = /^pkg:([a-z][a-z0-9.+-]*)\/./.exec(purl ?? "")?.[1];
  const name = textOf(fields.name, 300);
  if (purl === undefined || type === undefined || name === undefined) return undefined;
  const group = textOf(fields.group, 300);
  const dependency = {
    purl,
    name: group ? `${group}${type === "maven" ? ":" : "/"}${name}` : name,
    version: textOf(fields.version, 200) ?? "",
    ecosystem: ECOSYSTEMS[type] ?? type,
    direct: false,
    scope: ["required", "optional", "excluded"].find((one) => one === fields.scope) ?? null,
    licenses: licensesOf(fields.licenses),
  };
  return { dependency, refs: [refOf(fields) ?? purl], origin: originOf(fields) };
}

function originOf({ properties }: Fields): Part["origin"] {
  const files = objectsIn(properties, 200).flatMap(({ name, value }) =>
    name === "SrcFile" ? (textOf(value, 1000) ?? []) : [],
  );
  if (files.some((file) => /(?:^|\/)[\w.-]*requirements[\w.-]*\.txt$/.test(file))) return "requirements";
  return files.some((file) => /(?:^|\/)yarn\.lock$/.test(file)) ? "yarn" : "other";
}

function licensesOf(value: unknown): string[] {
  const names = objectsIn(value, 20).map(({ license, expression }) => {
    const { id, name } = fieldsOf(license) ?? {};
    return textOf(id, 100) ?? textOf(name, 100) ?? textOf(expression, 200);
  });
  return [...new Set(names.filter((name) => name !== undefined))];
}

/** The same package at two places. What one of them requires is required. */
function merged({ dependency, refs, origin }: Part, other: Part): Part {
  const needed = [dependency.scope, other.dependency.scope].find((scope) => scope === null || scope === "required");
  const licenses = new Set([...dependency.licenses, ...other.dependency.licenses]);
  return {
    dependency: { ...dependency, scope: needed === undefined ? dependency.scope : needed, licenses: [...licenses] },
    refs: [...new Set([...refs, ...other.refs])],
    origin: origin === "other" ? other.origin : origin,
  };
}
