// Reads the dependencies of a CycloneDX SBOM, and which of them are direct. The file describes an untrusted repository: every
// value is checked, every text and list is limited.
import type { Dependency } from "../model.ts";
import { type Fields, fieldsOf, objectsIn, packageUrlOf, textOf, textsIn } from "../untrusted.ts";
import { InvalidJson, readElements } from "./json-elements.ts";

export interface Bom {
  /** One per package URL, sorted by it. */
  dependencies: Dependency[];
  /** Number of components without a package URL. */
  unnamed: number;
}

/** Limits of components and edges. sbom.ts limits the file to 256 MB. */
const MAX_COMPONENTS = 250_000;
const MAX_EDGES = 5_000_000;
const MAX_REF = 5000;

/** Throws InvalidJson or SyntaxError if it is not an SBOM. Never reads the whole file into memory. */
export async function readBom(file: string): Promise<Bom> {
  const graph = new Graph();
  const found = new Map<string, GraphComponent>();
  let unnamed = 0;
  let hasMetadata = false;
  for await (const { key, value } of readElements(file, ["metadata", "components", "dependencies"])) {
    const fields = fieldsOf(value);
    if (!fields) continue;
    if (key === "metadata") {
      hasMetadata = true;
      graph.addRoot(fieldsOf(fields.component), 0);
    } else if (key === "dependencies") {
      graph.addEdges(fields);
    } else {
      const component = parseComponent(fields);
      const ref = component?.refs[0] ?? refOf(fields);
      const properties = objectsIn(fields.properties, 200);
      if (properties.some(({ name, value }) => name === "cdx:npm:isWorkspace" && value === "true")) {
        if (ref) graph.own.add(ref);
      } else if (!component) unnamed++;
      else {
        if (fields.type === "application") graph.applications.add(ref!);
        graph.components.add(ref!);
        const { purl } = component.dependency;
        const same = found.get(purl);
        found.set(purl, same ? mergeComponents(same, component) : component);
        if (found.size > MAX_COMPONENTS) throw new InvalidJson(`it has more than ${MAX_COMPONENTS} components`);
      }
    }
  }
  if (!hasMetadata) throw new InvalidJson("it is not a CycloneDX document");
  const isDirect = graph.directTest();
  const dependencies = [...found.values()]
    .filter(({ refs }) => !refs.every((ref) => graph.own.has(ref)))
    .map((component) => ({ ...component.dependency, direct: isDirect(component) }));
  return { dependencies: dependencies.sort((a, b) => (a.purl < b.purl ? -1 : 1)), unnamed };
}

/** A component and its references in the graph. */
interface GraphComponent {
  dependency: Dependency;
  refs: string[];
  /**
   * How far the graph can be trusted. For a yarn.lock cdxgen makes the root depend on everything; for a requirements.txt it
   * creates no graph, and all entries are direct.
   */
  origin: "yarn" | "requirements" | "other";
}

/** What the repository's own packages depend on, and what other components depend on. */
class Graph {
  /** The repository's own packages: not dependencies; what they depend on is direct. */
  readonly own = new Set<string>();
  /** Components of the type application: dependencies, but what they depend on is direct too. */
  readonly applications = new Set<string>();
  readonly components = new Set<string>();
  readonly #needed = new Set<string>();
  /** Edges of references that were not known as components yet: edges may come before components. */
  readonly #lists = new Map<string, string[]>();
  #edges = 0;

  /** The repository itself with its packages. */
  addRoot(fields: Fields | undefined, level: number): void {
    if (!fields || level > 5) return;
    const ref = refOf(fields);
    if (ref) this.own.add(ref);
    for (const inner of objectsIn(fields.components, MAX_COMPONENTS)) this.addRoot(inner, level + 1);
  }

  addEdges(fields: Fields): void {
    const ref = textOf(fields.ref, MAX_REF);
    if (ref === undefined) return;
    const targets = textsIn(fields.dependsOn, MAX_COMPONENTS, MAX_REF).filter((other) => other !== ref);
    this.#edges += targets.length;
    if (this.#edges > MAX_EDGES) throw new InvalidJson(`it has more than ${MAX_EDGES} edges`);
    if (!this.components.has(ref) || this.own.has(ref) || this.applications.has(ref)) this.#lists.set(ref, targets);
    else for (const other of targets) this.#needed.add(other);
  }

  /** Call it when everything is read. */
  directTest(): (component: GraphComponent) => boolean {
    const direct = new Set<string>();
    for (const [ref, targets] of this.#lists) {
      const isRoot = this.own.has(ref) || this.applications.has(ref);
      for (const other of targets) (isRoot ? direct : this.#needed).add(other);
    }
    // Package types that have a graph. For other types, a component that no other one needs comes from a manifest.
    const withGraph = new Set([...direct].filter((ref) => this.components.has(ref)).map(typeOfPurl));
    return ({ refs, origin }) =>
      refs.some((ref) => {
        const needed = this.#needed.has(ref);
        if (origin === "yarn") return !needed;
        return direct.has(ref) || (!needed && (origin === "requirements" || !withGraph.has(typeOfPurl(ref))));
      });
  }
}

function refOf(fields: Fields): string | undefined {
  return textOf(fields["bom-ref"], MAX_REF) ?? textOf(fields.purl, MAX_REF);
}

/** "pkg:npm" */
function typeOfPurl(ref: string): string {
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

/** Undefined without a valid package URL. */
function parseComponent(fields: Fields): GraphComponent | undefined {
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
    scope: ["required", "optional", "excluded"].find((scope) => scope === fields.scope) ?? null,
    licenses: licensesOf(fields.licenses),
  };
  return { dependency, refs: [refOf(fields) ?? purl], origin: originOf(fields) };
}

function originOf({ properties }: Fields): GraphComponent["origin"] {
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

/** The same package listed twice. It is required if one of them is. */
function mergeComponents({ dependency, refs, origin }: GraphComponent, other: GraphComponent): GraphComponent {
  const needed = [dependency.scope, other.dependency.scope].find((scope) => scope === null || scope === "required");
  const licenses = new Set([...dependency.licenses, ...other.dependency.licenses]);
  return {
    dependency: { ...dependency, scope: needed === undefined ? dependency.scope : needed, licenses: [...licenses] },
    refs: [...new Set([...refs, ...other.refs])],
    origin: origin === "other" ? other.origin : origin,
  };
}
