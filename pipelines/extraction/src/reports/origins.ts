// Finds the origin of vulnerable packages in the SBOM: whether the repository depends on them directly, and which of its files names them.
import { readBom } from "../sbom/components.ts";
import { readElements } from "../sbom/json-elements.ts";
import { fieldsOf, objectsIn, textOf } from "../untrusted.ts";

export interface Origin {
  direct: boolean;
  /** A file of the repository, such as "package-lock.json". */
  manifest: string | undefined;
}

export interface SearchedFiles {
  packagePath: string;
  /** Manifests by their paths in the repository, the nearest first. */
  manifests: readonly string[];
}

export async function readOrigins(
  file: string,
  wanted: ReadonlySet<string>,
  { packagePath, manifests }: SearchedFiles,
): Promise<Map<string, Origin>> {
  const origins = new Map<string, Origin>();
  const existing = new Set(manifests);
  const prefix = packagePath === "." ? "" : `${packagePath}/`;
  for (const { purl, direct } of (await readBom(file)).dependencies) {
    if (wanted.has(purl)) origins.set(purl, { direct, manifest: undefined });
  }
  for await (const { value } of readElements(file, ["components"])) {
    const component = fieldsOf(value);
    const origin = typeof component?.purl === "string" ? origins.get(component.purl) : undefined;
    if (origin) origin.manifest ??= manifestOf(component?.properties, prefix, existing);
  }
  for (const [purl, origin] of origins) origin.manifest ??= usualManifest(purl, manifests);
  return origins;
}

/** cdxgen's property SrcFile: a path in the repository, but for pnpm-lock.yaml relative to the package path. */
function manifestOf(properties: unknown, prefix: string, existing: ReadonlySet<string>): string | undefined {
  const found = objectsIn(properties, 100).find(({ name }) => name === "SrcFile");
  const file = textOf(found?.value, 1000);
  if (file === undefined || existing.has(file)) return file;
  return existing.has(prefix + file) || !file.startsWith(prefix) ? prefix + file : file;
}

/** Used if cdxgen does not name the file. */
const MANIFESTS_BY_TYPE: Record<string, RegExp> = {
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
  const pattern = Object.hasOwn(MANIFESTS_BY_TYPE, type) ? MANIFESTS_BY_TYPE[type] : undefined;
  return pattern && manifests.find((manifest) => pattern.test(manifest.slice(manifest.lastIndexOf("/") + 1)));
}
