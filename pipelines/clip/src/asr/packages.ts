// The packages of speech recognition. They are too large (300 MB) for the default install, so `speech/` has a separate
// manifest and lock file, and the code works without them until a transcription is requested.
import fs from "node:fs";
import { createRequire } from "node:module";
import path from "node:path";

/** Resolves from speech/, at the same depth from src/ and from dist/; then from the folders above, like any package. */
export const require = createRequire(new URL("../../speech/package.json", import.meta.url));
const NAMES = ["onnxruntime-node", "@usefulsensors/moonshine-js", "llama-tokenizer-js"] as const;

/** Null if speech can be recognized, else a sentence that names the command to run. */
export function asrUnavailable(): string | null {
  const missing = NAMES.filter((name) => !packageDirectory(name));
  if (missing.length === 0) return null;
  return `Speech recognition is not installed (missing: ${missing.join(", ")}): run "npm ci --prefix pipelines/clip/speech" in the project folder (300 MB)`;
}

/** Like require.resolve, which cannot find files that the package's `exports` hide. */
export function packageDirectory(name: (typeof NAMES)[number]): string | undefined {
  const homes = (require.resolve.paths(name) ?? []).map((modules) => path.join(modules, name));
  return homes.find((home) => fs.existsSync(path.join(home, "package.json")));
}
