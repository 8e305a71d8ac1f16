// Turns the end of a machine's log into its exit reason, which the database stores and operators read. Secrets are masked.

const MAX_LENGTH = 500;
const SECRET_NAME = /PASS|PWD|SECRET|TOKEN|CREDENTIAL|(?:^|_)KEY/i;

/** The last three lines, or the `msg` of JSON lines, without `secrets` and anything that looks like a secret. */
export function toExitReason(text: string, secrets: readonly string[]): string | undefined {
  const lines = text
    .split("\n")
    .map((line) => line.trim())
    .filter(Boolean)
    .slice(-3)
    .map((line) => /^\{.*"msg":"((?:[^"\\]|\\.)*)"/.exec(line)?.[1] ?? line);
  return maskSecrets(lines.join(" | "), secrets).slice(-MAX_LENGTH) || undefined;
}

/** Values under secret-like names and passwords of URLs, in every encoding a log may contain. */
export function collectSecrets(env: Readonly<Record<string, string | undefined>>): string[] {
  const values = Object.entries(env).flatMap(([name, value = ""]) => {
    // Up to the last @: an unencoded password may contain one.
    const password = /:\/\/[^:/@\s]*:(.*)@/.exec(value)?.[1];
    return [...(SECRET_NAME.test(name) ? [value] : []), ...(password === undefined ? [] : [password])];
  });
  const forms = values.flatMap((value) => {
    const decoded = decode(value);
    return [value, decoded, encodeURIComponent(decoded), encodeURI(decoded), JSON.stringify(decoded).slice(1, -1)];
  });
  // Longest first: one may contain another. Very short values would match everywhere.
  return [...new Set(forms)].filter((form) => form.length >= 4).toSorted((a, b) => b.length - a.length);
}

function maskSecrets(text: string, secrets: readonly string[]): string {
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

function decode(value: string): string {
  try {
    return decodeURIComponent(value);
  } catch {
    return value;
  }
}
