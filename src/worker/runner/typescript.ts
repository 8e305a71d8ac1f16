// Modules of the project in TypeScript: Node runs them itself since 22.18. An older Node needs tsx, which the project installs.
import { createRequire } from "node:module";
import { pathToFileURL } from "node:url";

/** @types/node of the oldest supported version does not know this field. */
export const nodeRunsTypeScript = Boolean((process.features as { typescript?: unknown }).typescript);

export const typescriptRemedy = "Run npm install --save-dev tsx, or use Node 22.18 or later";

/** Call before a module of the project is imported. Without tsx, the import fails with ERR_UNKNOWN_FILE_EXTENSION. */
export async function prepareImport(file: string): Promise<void> {
  if (nodeRunsTypeScript || !/\.[cm]?ts$/.test(file)) return;
  let tsx: string;
  try {
    tsx = createRequire(file).resolve("tsx");
  } catch {
    return;
  }
  // The same as --import tsx. A second import of the module does nothing.
  await import(pathToFileURL(tsx).href);
}
