// Removes the paths of the scratch directory from an SBOM: cdxgen writes absolute paths, which would reveal the machine and
// differ between attempts.
import fs from "node:fs";

/** Streams the file without these directories. A relative directory counts only at the start of a value. */
export async function* stripPaths(
  file: string,
  directories: readonly string[],
  chunkBytes = 64 * 1024,
): AsyncGenerator<string> {
  const pattern = pathPattern(directories);
  const clean = (text: string) => text.replace(pattern, "");
  let rest = "";
  const chunks = fs.createReadStream(file, { encoding: "utf8", highWaterMark: chunkBytes });
  for await (const chunk of chunks as AsyncIterable<string>) {
    // A path never contains an unescaped quote, so it is safe to split before one.
    let cut = chunk.lastIndexOf('"');
    while (cut > 0 && chunk[cut - 1] === "\\") cut = chunk.lastIndexOf('"', cut - 1);
    if (cut > 0) {
      yield clean(rest + chunk.slice(0, cut));
      rest = chunk.slice(cut);
    } else rest += chunk;
  }
  yield clean(rest);
}

/** The longest first, because one may contain another. */
function pathPattern(directories: readonly string[]): RegExp {
  const alternatives = [...new Set(directories)]
    .sort((a, b) => b.length - a.length)
    .map((directory) => {
      const escaped = JSON.stringify(directory)
        .slice(1, -1)
        .replace(/[\\^$.*+?()[\]{}|]/g, "\\$&");
      const before = directory.startsWith("/") ? "(?<![\\w.-])" : '(?<=(?<!\\\\)")';
      return `${before}${escaped}(?:/|(?![\\w.-]))`;
    });
  return new RegExp(alternatives.length > 0 ? alternatives.join("|") : "(?!)", "g");
}
