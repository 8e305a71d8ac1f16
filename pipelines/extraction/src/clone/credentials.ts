// Credentials for a clone. GitHub: an installation token created from the App's key for this clone, which can read this one
// repository and expires within an hour. GitLab and Bitbucket: the sealed credential of the job. They are redacted first,
// and sent to the provider only: not to a mirror, and not over a connection that is not confidential.
import { createAppAuth } from "@octokit/auth-app";
import { userError } from "@stillwake/kit/failures";
import type { Remote } from "@stillwake/kit/git/address";
import { notFound } from "@stillwake/kit/git/failures";
import type { Credential } from "@stillwake/kit/git/git";
import { type Input, PROVIDER_NAMES } from "../contract.ts";
import type { Settings } from "../settings.ts";

interface Expiring extends Credential {
  expiresAt?: Date;
}

export interface Credentials {
  /** Undefined: anonymous access. */
  tokenFor(input: CredentialInput, remote: CredentialRemote, signal: AbortSignal): Promise<Expiring | undefined>;
}

type CredentialInput = Pick<Input, "provider" | "repository" | "installationId" | "credential">;
type CredentialRemote = Pick<Remote, "host" | "mirror" | "confidential">;

/** User name that goes with a token, by convention of the provider. */
const USERS: Record<Input["provider"], string> = {
  github: "x-access-token",
  gitlab: "oauth2",
  bitbucket: "x-token-auth",
};
const TIMEOUT_MS = 20_000;
/** GitHub's response names one repository and has a few kilobytes. */
const MAX_RESPONSE_BYTES = 256 * 1024;

export function credentialsOf(
  settings: Pick<Settings, "githubApiUrl" | "githubApp">,
  redact: (value: unknown) => void,
): Credentials {
  return {
    async tokenFor(input, remote, signal) {
      const { provider, repository, credential: token } = input;
      const user = USERS[provider];
      if (token) redact(token);
      if (remote.mirror) return undefined;
      const installation = provider === "github" ? input.installationId : undefined;
      if ((installation || token) && !remote.confidential) throw plainHttpError(provider, remote.host);
      if (installation)
        return { user, ...(await installationToken(settings, installation, repository, redact, signal)) };
      return token ? { user, token } : undefined;
    },
  };
}

export function authenticationFailed(provider: Input["provider"], cause?: unknown): Error {
  const message =
    provider === "github"
      ? "Authentication failed - your GitHub App installation may need to be reconnected"
      : `Authentication failed - reconnect your ${PROVIDER_NAMES[provider]} integration in Organization Settings`;
  return userError(message, { code: "CLONE_AUTH", fatal: true, cause });
}

function plainHttpError(provider: Input["provider"], host: string): Error {
  return userError(
    `The token for ${PROVIDER_NAMES[provider]} is not sent to ${host} over plain http - set EXTRACTION_${provider.toUpperCase()}_URL to an https URL, or allow its network with EXTRACTION_ALLOW_ADDRESSES`,
    { code: "CLONE_PLAIN_HTTP", fatal: true },
  );
}

async function installationToken(
  { githubApiUrl, githubApp }: Pick<Settings, "githubApiUrl" | "githubApp">,
  installationId: string,
  repository: string,
  redact: (value: unknown) => void,
  signal: AbortSignal,
): Promise<Omit<Expiring, "user">> {
  if (!githubApp) {
    throw userError(
      "The GitHub App is not set up on the worker - set EXTRACTION_GITHUB_APP_ID and EXTRACTION_GITHUB_APP_KEY",
      {
        code: "CLONE_APP",
        fatal: true,
      },
    );
  }
  const jwt = await signAppJwt(githubApp);
  redact(jwt);
  const response = await postToGitHub(
    `${githubApiUrl.replace(/\/+$/, "")}/app/installations/${installationId}/access_tokens`,
    signal,
    {
      authorization: `Bearer ${jwt}`,
      body: JSON.stringify({ repositories: [repository.split("/").at(-1)], permissions: { contents: "read" } }),
    },
  );
  if (response.status !== 201) throw explainStatus(response);
  const { token, expires_at: expires } = response.body as { token?: unknown; expires_at?: unknown };
  if (typeof token !== "string" || !/^[\x21-\x7e]{8,4096}$/.test(token)) {
    throw userError("GitHub returned no token - it will be retried", { code: "CLONE_TOKEN" });
  }
  redact(token);
  const expiresAt = new Date(String(expires));
  return { token, ...(!Number.isNaN(expiresAt.getTime()) && { expiresAt }) };
}

/** The App's JWT, valid for ten minutes. The key is PEM, or base64 of it for single-line variables. */
async function signAppJwt({ id, key }: NonNullable<Settings["githubApp"]>): Promise<string> {
  const privateKey = key.includes("-----BEGIN") ? key : Buffer.from(key, "base64").toString("utf8");
  try {
    const { token } = await createAppAuth({ appId: id, privateKey })({ type: "app" });
    return token;
  } catch {
    // The library's message may quote the key.
    throw userError(
      "The key of the GitHub App is invalid - set EXTRACTION_GITHUB_APP_KEY to its PEM, or to base64 of it",
      {
        code: "CLONE_APP",
        fatal: true,
      },
    );
  }
}

interface GitHubResponse {
  status: number;
  headers: Headers;
  body: object;
}

/** Follows no redirects, which would send the JWT to another host. */
async function postToGitHub(
  url: string,
  signal: AbortSignal,
  { authorization, body }: { authorization: string; body: string },
): Promise<GitHubResponse> {
  try {
    const response = await fetch(url, {
      method: "POST",
      redirect: "manual",
      signal: AbortSignal.any([signal, AbortSignal.timeout(TIMEOUT_MS)]),
      headers: {
        authorization,
        accept: "application/vnd.github+json",
        "content-type": "application/json",
        "user-agent": "stillwake-extraction",
        "x-github-api-version": "2022-11-28",
      },
      body,
    });
    return { status: response.status, headers: response.headers, body: await readJsonObject(response) };
  } catch (error) {
    signal.throwIfAborted();
    throw userError("GitHub could not be reached for a token - check the worker's network", {
      code: "CLONE_TOKEN",
      cause: error,
    });
  }
}

async function readJsonObject(response: Response): Promise<object> {
  const parts: Uint8Array[] = [];
  let size = 0;
  for await (const part of response.body ?? []) {
    parts.push(part as Uint8Array);
    size += part.length;
    if (size > MAX_RESPONSE_BYTES) break;
  }
  try {
    const value: unknown = JSON.parse(Buffer.concat(parts).toString("utf8"));
    return typeof value === "object" && value !== null ? value : {};
  } catch {
    return {};
  }
}

function explainStatus({ status, headers }: GitHubResponse): Error {
  if (
    status === 429 ||
    (status === 403 && (headers.has("retry-after") || headers.get("x-ratelimit-remaining") === "0"))
  ) {
    return userError("GitHub rate limit reached - it will be retried later", { code: "CLONE_RATE_LIMITED" });
  }
  // Unknown App, replaced key, or removed or suspended installation.
  if (status === 401 || status === 403 || status === 404)
    return authenticationFailed("github", new Error(`GitHub returned ${status}`));
  // The installation has no access to this repository.
  if (status === 422) return notFound(new Error("GitHub returned 422"));
  return userError(`GitHub did not create a token (HTTP ${status}) - it will be retried`, { code: "CLONE_TOKEN" });
}
