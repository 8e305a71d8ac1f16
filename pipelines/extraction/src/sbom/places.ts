// A bill of materials names the files it was made from, and cdxgen names them by where they stood on this machine. Others are given their paths in the
// repository: where our scratch directory was is nobody's business, and is another place in every attempt.
import fs from "node:fs";

/**
 * The text of the file without the paths of these directories, piece by piece. A relative one is a path only where a value begins with it: elsewhere the same
 * letters are words.
 */
export async function* withoutPlaces(
  file: string,
  directories: readonly string[],
  chunkBytes = 64 * 1024,
): AsyncGenerator<string> {
  const places = placesIn(directories);
  const clean = (text: string) => text.replace(places, "");
  let rest = "";
  const chunks = fs.createReadStream(file, { encoding: "utf8", highWaterMark: chunkBytes });
  for await (const chunk of chunks as AsyncIterable<string>) {
    // No path goes across the quote that ends or begins a value, so a piece may end before one. Behind a backslash it is a letter of the value.
    let cut = chunk.lastIndexOf('"');
    while (cut > 0 && chunk[cut - 1] === "\\") cut = chunk.lastIndexOf('"', cut - 1);
    if (cut > 0) {
      yield clean(rest + chunk.slice(0, cut));
      rest = chunk.slice(cut);
    } else rest += chunk;
  }
  yield clean(rest);
}

/** The longest first: one may be a part of another. */
function placesIn(directories: readonly string[]): RegExp {
  const words = [...new Set(directories)]
    .sort((a, b) => b.length - a.length)
    .map((directory) => {
      const written = JSON.stringify(directory)
        .slice(1, -1)
        .replace(/[\\^$.*+?()[\]{}|]/g, "\\$&");
      const before = directory.startsWith("/") ? "(?<![\\w.-])" : '(?<=(?<!\\\\)")';
      return `${before}${written}(?:/|(?![\\w.-]))`;
    });
  return new RegExp(words.length > 0 ? words.join("|") : "(?!)", "g");
}
