// Maps package URLs to the ecosystems and names of advisories: "pkg:pypi/PyYAML@5.1" is pyyaml of PyPI. Names are normalized
// like their registry does. Package URLs are parsed here because the usual library throws on some Go module versions.

export const ECOSYSTEMS = [
  "npm",
  "PyPI",
  "Go",
  "crates.io",
  "Maven",
  "NuGet",
  "Packagist",
  "RubyGems",
  "Hex",
  "Pub",
  "GitHub Actions",
] as const;
export type Ecosystem = (typeof ECOSYSTEMS)[number];

export interface Component {
  /** As in the SBOM. */
  purl: string;
  ecosystem: Ecosystem;
  name: string;
  /** Empty if the manifest does not pin it. */
  version: string;
  /** Key of its advisories. */
  key: string;
  /** Type and decoded path of the package URL: "npm", ["@scope", "name"]. */
  type: string;
  path: string[];
}

const TYPES: Readonly<Record<string, Ecosystem>> = {
  npm: "npm",
  pypi: "PyPI",
  golang: "Go",
  cargo: "crates.io",
  maven: "Maven",
  nuget: "NuGet",
  composer: "Packagist",
  gem: "RubyGems",
  hex: "Hex",
  pub: "Pub",
  github: "GitHub Actions",
};

/** Undefined for an unknown package type. */
export function componentOf(purl: string): Component | undefined {
  const parts = /^pkg:\/*([A-Za-z0-9.+-]+)\/([^?#]+)/.exec(purl);
  const [, rawType = "", path = ""] = parts ?? [];
  const type = rawType.toLowerCase();
  const ecosystem = Object.hasOwn(TYPES, type) ? TYPES[type] : undefined;
  if (!ecosystem) return undefined;
  // The version begins at the last "@". The "@" of a scope should be written as %40, but not all tools do.
  const last = path.lastIndexOf("@");
  const at = last < 1 || path[last - 1] === "/" ? path.length : last;
  const version = decoded(path.slice(at + 1));
  const names = path.slice(0, at).split("/").filter(Boolean).map(decoded);
  if (names.length === 0) return undefined;
  const name = ecosystem === "Maven" ? [names.slice(0, -1).join("."), names.at(-1)].join(":") : names.join("/");
  return { purl, ecosystem, name, version, key: packageKey(ecosystem, name), type, path: names };
}

/** OSV's name of an ecosystem may have a suffix, such as "Packagist:https://…". Undefined if it is not supported. */
export function ecosystemOf(osvName: string): Ecosystem | undefined {
  const [name] = osvName.split(":");
  return ECOSYSTEMS.find((ecosystem) => ecosystem === name);
}

/** Go module paths are case-sensitive, but many tools write package URLs in lower case, so they are compared in lower case. */
export function packageKey(ecosystem: Ecosystem, name: string): string {
  switch (ecosystem) {
    case "PyPI":
      return `${ecosystem}/${name.toLowerCase().replace(/[-_.]+/g, "-")}`;
    case "Go":
    case "NuGet":
    case "Packagist":
    case "GitHub Actions":
      return `${ecosystem}/${name.toLowerCase()}`;
    default:
      return `${ecosystem}/${name}`;
  }
}

function decoded(text: string): string {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}
