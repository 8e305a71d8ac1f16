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

export async function originsOf(file: string, wanted: ReadonlySet<string>): Promise<Map<string, Origin>> {
  const origins = new Map<string, Origin>();
  for (const { purl, direct } of (await readBom(file)).dependencies) {
    if (wanted.has(purl)) origins.set(purl, { direct, manifest: undefined });
  }
  for await (const { value } of elementsOf(file, ["components"])) {
    const component = fieldsOf(value);
    const origin = typeof component?.purl === "string" ? origins.get(component.purl) : undefined;
    if (origin) origin.manifest ??= manifestOf(component?.properties);
  }
  return origins;
}

/** What cdxgen calls SrcFile. */
function manifestOf(properties: unknown): string | undefined {
  const found = objectsIn(properties, 100).find(({ name }) => name === "SrcFile");
  return textOf(found?.value, 1000);
}
