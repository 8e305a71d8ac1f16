// Whether the project's own tsconfig.json compiles the files of the starter, and what to add to it then.
const SOURCE = /\.([mc]?ts|tsx)$/;

/** The starter has its own tsconfig.json, and the project's compiler settings may not fit its files. `text`: the project's tsconfig.json. */
export function noteCoveringTsconfig(text: string, folder: string, starterFiles: readonly string[]): string[] {
  const tsconfig = parseJsonWithComments(text);
  if (!tsconfig) return [];
  const { files, include = files ? [] : ["**/*"], exclude } = tsconfig as Record<string, string[] | undefined>;
  const { outDir } = (tsconfig.compilerOptions ?? {}) as { outDir?: string };
  const excluded = exclude ?? ["node_modules", ...(outDir ? [outDir] : [])];
  const covered = starterFiles.filter(
    (file) =>
      SOURCE.test(file) &&
      include.some((pattern) => matches(file, pattern, "files")) &&
      !excluded.some((pattern) => matches(file, pattern, "all")),
  );
  if (covered.length === 0) return [];
  const inFolder = covered.some((file) => file.startsWith(folder));
  const added = [...(inFolder ? [folder.slice(0, -1)] : []), ...covered.filter((file) => !file.startsWith(folder))];
  const lines = [...excluded, ...added].map((one) => JSON.stringify(one)).join(", ");
  const has = inFolder
    ? `${folder}, which has its own tsconfig.json`
    : `${added[0]}, which ${folder}tsconfig.json covers`;
  return [`Your tsconfig.json also covers ${has}. Add to yours:\n\n  "exclude": [${lines}]`];
}

/**
 * As the compiler matches: ** stands for folders, and a pattern that names a folder stands for what is in it. A last part of `include`
 * without an extension, such as *, takes every source file; one with an extension, such as *.ts, takes no .mts file.
 */
function matches(file: string, pattern: string, part: "files" | "all"): boolean {
  const clean = pattern.replace(/^(\.\/)+|\/+$/g, "");
  if (clean === "" || clean === ".") return true;
  const parts = clean.split("/");
  const source = parts.map((one, index) => {
    const isLast = index === parts.length - 1;
    if (one === "**") return isLast ? ".*" : "(?:[^/]+/)*";
    const name = one
      .replaceAll(/[.+^${}()|[\]\\]/g, "\\$&")
      .replaceAll("*", "[^/]*")
      .replaceAll("?", "[^/]");
    return isLast ? name : `${name}/`;
  });
  const isFolder = part === "all" || !/[*?]/.test(parts.at(-1)!);
  return new RegExp(`^${source.join("")}${isFolder ? "(?:/.*)?" : ""}$`).test(file);
}

function parseJsonWithComments(text: string): Record<string, unknown> | undefined {
  const string = '"(?:\\\\.|[^"\\\\])*"';
  const plain = text
    .replaceAll(new RegExp(`(${string})|//[^\\n]*|/\\*[\\s\\S]*?\\*/`, "g"), "$1")
    .replaceAll(new RegExp(`(${string})|,(?=\\s*[}\\]])`, "g"), "$1");
  try {
    return JSON.parse(plain);
  } catch {
    return undefined;
  }
}
