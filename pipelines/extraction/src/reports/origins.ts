// Where a vulnerable package comes from: whether the repository asks for it itself, and which of its files names it. Read from the bill of materials, piece by
// piece, for the packages that are asked about.
import { readBom } from "../sbom/components.ts";
import { elementsOf } from "../sbom/elements.ts";
import { fieldsOf, objectsIn, textOf } from "../untrusted.ts";

export interface Origin {
  direct: boolean;
  /** A file of the repository, such as "package-lock.json". */
  manifest: string | undefined;
}

/** What was looked at, by paths in the repository. */
export interface Looked {
  packagePath: string;
  /** The nearest first. */
  manifests: readonly string[];
}

export async function originsOf(
  file: string,
  wanted: ReadonlySet<string>,
  { packagePath, manifests }: Looked,
): Promise<Map<string, Origin>> {
  const origins = new Map<string, Origin>();
  const there = new Set(manifests);
  const below = packagePath === "." ? "" : `${packagePath}/`;
  for (const { purl, direct } of (await readBom(file)).dependencies) {
    if (wanted.has(purl)) origins.set(purl, { direct, manifest: undefined });
  }
  for await (const { value } of elementsOf(file, ["components"])) {
    const component = fieldsOf(value);
    const origin = typeof component?.purl === "string" ? origins.get(component.purl) : undefined;
    if (origin) origin.manifest ??= manifestOf(component?.properties, below, there);
  }
  for (const [purl, origin] of origins) origin.manifest ??= usualManifest(purl, manifests);
  return origins;
}

/** What cdxgen calls SrcFile: a path in the repository, but for a pnpm-lock.yaml one from the package path. */
function manifestOf(properties: unknown, below: string, there: ReadonlySet<string>): string | undefined {
  const found = objectsIn(properties, 100).find(({ name }) => name === "SrcFile");
  const named = textOf(found?.value, 1000);
  if (named === undefined || there.has(named)) return named;
  return there.has(below + named) || !named.startsWith(below) ? below + named : named;
}

/** Where cdxgen does not say. */
const USUAL: Record<string, RegExp> = {
  cargo: /^Cargo\.(?:lock|toml)$/,
  composer: /^composer\.(?:lock|json)$/,
  gem: /^Gemfile(?:\.lock)?$/,
  golang: /^go\.mod$/,
  maven: /^(?:pom\.xml|build\.gradle(?:\.kts)?|gradle\.lockfile)$/,
  npm: /^(?:package-lock\.json|npm-shrinkwrap\.json|yarn\.lock|pnpm-lock\.yaml|package\.json)$/,
  nuget: /\.(?:cs|fs|vb)proj$|^packages\./,
  pypi: /^(?:Pipfile(?:\.lock)?|poetry\.lock|uv\.lock|pdm\.lock|pylock\.toml|pyproject\.toml|.*requirements.*\.txt|setup\.(?:py|cfg))$/,
};

function usualManifest(purl: string, manifests: readonly string[]): string | undefined {
  const type = /^pkg:([a-z]+)\//.exec(purl)?.[1] ?? "";
  const usual = Object.hasOwn(USUAL, type) ? USUAL[type] : undefined;
  return usual && manifests.find((manifest) => usual.test(manifest.slice(manifest.lastIndexOf("/") + 1)));
}
