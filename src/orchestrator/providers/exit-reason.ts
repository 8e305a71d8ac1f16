// The last words of a machine, as a reason of its end that people read and the database keeps: nothing in it lets anybody in anywhere.

const MAX_WORDS = 500;
const SECRET_NAME = /PASS|PWD|SECRET|TOKEN|CREDENTIAL|(?:^|_)KEY/i;

/** The last lines; of those that are meant for machines, what they say. None of `secrets`, and nothing that looks like one. */
export function lastWords(text: string, secrets: readonly string[]): string | undefined {
  const lines = text
    .split("\n")
    .map((line) => line.trim())
    .filter(Boolean)
    .slice(-3)
    .map((line) => /^\{.*"msg":"((?:[^"\\]|\\.)*)"/.exec(line)?.[1] ?? line);
  return masked(lines.join(" | "), secrets).slice(-MAX_WORDS) || undefined;
}

/** What in an environment is secret: values under a name that says so, and passwords of URLs, in every form in which they may be said again. */
export function secretsOf(env: Readonly<Record<string, string | undefined>>): string[] {
  const values = Object.entries(env).flatMap(([name, value = ""]) => {
    // Up to the last @: a password that nobody has encoded may contain one.
    const password = /:\/\/[^:/@\s]*:(.*)@/.exec(value)?.[1];
    return [...(SECRET_NAME.test(name) ? [value] : []), ...(password === undefined ? [] : [password])];
  });
  const forms = values.flatMap((value) => {
    const plain = decoded(value);
    return [value, plain, encodeURIComponent(plain), encodeURI(plain), JSON.stringify(plain).slice(1, -1)];
  });
  // The longest first: one may be a part of another. What is very short is a part of everything.
  return [...new Set(forms)].filter((form) => form.length >= 4).toSorted((a, b) => b.length - a.length);
}

function masked(text: string, secrets: readonly string[]): string {
  return secrets
    .reduce((rest, secret) => rest.replaceAll(secret, "***"), text)
    .replaceAll(/:\/\/[^\s/]+@/g, "://***@")
    .replaceAll(/\bBearer\s+[^\s"',]+/gi, "Bearer ***")
    .replaceAll(/\b(authorization["']?\s*[:=]\s*["']?(?:\w+\s+)?)[^\s"',|]+/gi, "$1***")
    .replaceAll(
      /([\w-]*(?:passw(?:or)?d|passphrase|pwd|secret|token|api[-_]?key|access[-_]?key)[\w-]*)(\\?["']?\s*=\s*|\\?["']\s*:\s*)(\\?"[^"\\]*\\?"|'[^']*'|[^\s"'&,;|]+)/gi,
      "$1$2***",
    );
}

function decoded(value: string): string {
  try {
    return decodeURIComponent(value);
  } catch {
    return value;
  }
}
