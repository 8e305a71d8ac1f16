// A bill of materials names the files it was made from, and cdxgen names them by where they stood on this machine. Others are given their paths in the
// repository: where our scratch directory was is nobody's business, and is another place in every attempt.
import fs from "node:fs";

/** The text of the file without the paths of these directories, absolute or from its working directory, piece by piece. */
export async function* withoutPlaces(file: string, directories: readonly string[]): AsyncGenerator<string> {
  // The longest first: one may be a part of another.
  const words = directories
    .flatMap((directory) => [`${directory}/`, directory])
    .map((word) => JSON.stringify(word).slice(1, -1))
    .sort((a, b) => b.length - a.length);
  const longest = words[0]?.length ?? 0;
  let rest = "";
  for await (const chunk of fs.createReadStream(file, { encoding: "utf8" }) as AsyncIterable<string>) {
    const text = words.reduce((left, word) => left.replaceAll(word, ""), rest + chunk);
    // What a path may have begun with waits for the next piece.
    const from = Math.max(text.length - longest, 0);
    yield text.slice(0, from);
    rest = text.slice(from);
  }
  yield words.reduce((left, word) => left.replaceAll(word, ""), rest);
}
