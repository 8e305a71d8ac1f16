// Which package a component is, in the words of the advisories: "pkg:pypi/PyYAML@5.1" is pyyaml of PyPI. Names are compared as their registry compares them.
// Package URLs are taken apart here, because the usual library for it throws on versions of Go modules that are not plain.

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
  /** As it stands in the SBOM. */
  purl: string;
  ecosystem: Ecosystem;
  name: string;
  /** Empty where the manifest leaves it open. */
  version: string;
  /** Under which advisories of it are found. */
  key: string;
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

/** Undefined when no advisory can be about it: an unknown kind of package. */
export function componentOf(purl: string): Component | undefined {
  const parts = /^pkg:\/*([A-Za-z0-9.+-]+)\/([^?#]+)/.exec(purl);
  const ecosystem = parts && TYPES[parts[1]!.toLowerCase()];
  if (!ecosystem) return undefined;
  const path = parts[2]!;
  // The version begins at the last "@": that of a scope is written %40, but not by everybody.
  const last = path.lastIndexOf("@");
  const at = last < 1 || path[last - 1] === "/" ? path.length : last;
  const version = decoded(path.slice(at + 1));
  const names = path.slice(0, at).split("/").filter(Boolean).map(decoded);
  if (names.length === 0) return undefined;
  const name = ecosystem === "Maven" ? [names.slice(0, -1).join("."), names.at(-1)].join(":") : names.join("/");
  return { purl, ecosystem, name, version, key: packageKey(ecosystem, name) };
}

/** An ecosystem as OSV writes it, which may have a suffix such as "Packagist:https://…"; undefined when we know no components of it. */
export function ecosystemOf(written: string): Ecosystem | undefined {
  const [name] = written.split(":");
  return ECOSYSTEMS.find((one) => one === name);
}

/**
 * Module paths of Go know upper case, but package URLs are written in lower case by many tools; two modules that differ only in case are not met in
 * practice.
 */
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
