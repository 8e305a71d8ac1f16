// What a repository is fetched with: for GitHub a token made for this one clone from the App's key, which reads this one repository and dies within the hour;
// for GitLab and Bitbucket the credential that came sealed with the job. Whatever it is, it is hidden before anything else is done with it, and it goes to the
// provider alone: not to a mirror, and to nobody by a line that others can read.
import { createAppAuth } from "@octokit/auth-app";
import type { Remote } from "@stillwake/kit/git/address";
import type { Credential } from "@stillwake/kit/git/git";
import { notFound } from "@stillwake/kit/git/refusals";
import { tell } from "@stillwake/kit/user-error";
import { type Input, PROVIDER_NAMES } from "../contract.ts";
import type { Settings } from "../settings.ts";

interface Expiring extends Credential {
  expiresAt?: Date;
}

export interface Credentials {
  /** Undefined: the repository is asked for as anybody may. */
  tokenFor(input: CredentialInput, remote: CredentialRemote, signal: AbortSignal): Promise<Expiring | undefined>;
}

type CredentialInput = Pick<Input, "provider" | "repository" | "installationId" | "credential">;
type CredentialRemote = Pick<Remote, "host" | "mirror" | "confidential">;

/** Who a token's user is called, by the provider's convention. */
const USERS: Record<Input["provider"], string> = {
  github: "x-access-token",
  gitlab: "oauth2",
  bitbucket: "x-token-auth",
};
const ANSWER_MS = 20_000;
/** GitHub's answer names one repository and is of a few kilobytes. */
const MAX_ANSWER = 256 * 1024;

export function credentialsOf(
  settings: Pick<Settings, "githubApiUrl" | "githubApp">,
  hide: (value: unknown) => void,
): Credentials {
  return {
    async tokenFor(input, remote, signal) {
      const { provider, repository, credential: token } = input;
      const user = USERS[provider];
      if (token) hide(token);
      if (remote.mirror) return undefined;
      const installation = provider === "github" ? input.installationId : undefined;
      if ((installation || token) && !remote.confidential) throw plainHttp(provider, remote.host);
      if (installation) return { user, ...(await installationToken(settings, installation, repository, hide, signal)) };
      return token ? { user, token } : undefined;
    },
  };
}

/** The sentence of a provider that does not let us in. */
export function reconnect(provider: Input["provider"], cause?: unknown): Error {
  const message =
    provider === "github"
      ? "Authentication failed - your GitHub App installation may need to be reconnected"
      : `Authentication failed - reconnect your ${PROVIDER_NAMES[provider]} integration in Organization Settings`;
  return tell(message, { code: "CLONE_AUTH", fatal: true, cause });
}

/** No token is made for it either. */
function plainHttp(provider: Input["provider"], host: string): Error {
  return tell(
    `The token of ${PROVIDER_NAMES[provider]} is not sent to ${host} over plain http - set EXTRACTION_${provider.toUpperCase()}_URL to an https address, or allow its range by EXTRACTION_ALLOW_ADDRESSES`,
    { code: "CLONE_PLAIN_HTTP", fatal: true },
  );
}

async function installationToken(
  { githubApiUrl, githubApp }: Pick<Settings, "githubApiUrl" | "githubApp">,
  installationId: string,
  repository: string,
  hide: (value: unknown) => void,
  signal: AbortSignal,
): Promise<Omit<Expiring, "user">> {
  if (!githubApp) {
    throw tell(
      "The GitHub App is not set up on the worker - set EXTRACTION_GITHUB_APP_ID and EXTRACTION_GITHUB_APP_KEY",
      {
        code: "CLONE_APP",
        fatal: true,
      },
    );
  }
  const jwt = await signed(githubApp);
  hide(jwt);
  const answer = await ask(
    `${githubApiUrl.replace(/\/+$/, "")}/app/installations/${installationId}/access_tokens`,
    signal,
    {
      authorization: `Bearer ${jwt}`,
      body: JSON.stringify({ repositories: [repository.split("/").at(-1)], permissions: { contents: "read" } }),
    },
  );
  if (answer.status !== 201) throw refusal(answer);
  const { token, expires_at: expires } = answer.body as { token?: unknown; expires_at?: unknown };
  if (typeof token !== "string" || !/^[\x21-\x7e]{8,4096}$/.test(token)) {
    throw tell("GitHub answered without a token - it is asked again", { code: "CLONE_TOKEN" });
  }
  hide(token);
  const expiresAt = new Date(String(expires));
  return { token, ...(!Number.isNaN(expiresAt.getTime()) && { expiresAt }) };
}

/** The App's own proof, good for ten minutes. The key may be given as PEM or, for variables of one line, as base64 of it. */
async function signed({ id, key }: NonNullable<Settings["githubApp"]>): Promise<string> {
  const privateKey = key.includes("-----BEGIN") ? key : Buffer.from(key, "base64").toString("utf8");
  try {
    const { token } = await createAppAuth({ appId: id, privateKey })({ type: "app" });
    return token;
  } catch {
    // What the library has to say may quote the key.
    throw tell(
      "The key of the GitHub App cannot be read - set EXTRACTION_GITHUB_APP_KEY to its PEM, or to base64 of it",
      {
        code: "CLONE_APP",
        fatal: true,
      },
    );
  }
}

interface Answer {
  status: number;
  headers: Headers;
  body: object;
}

/** One POST. Redirects are not followed: they would take the proof elsewhere. */
async function ask(
  url: string,
  signal: AbortSignal,
  { authorization, body }: { authorization: string; body: string },
): Promise<Answer> {
  try {
    const response = await fetch(url, {
      method: "POST",
      redirect: "manual",
      signal: AbortSignal.any([signal, AbortSignal.timeout(ANSWER_MS)]),
      headers: {
        authorization,
        accept: "application/vnd.github+json",
        "content-type": "application/json",
        "user-agent": "stillwake-extraction",
        "x-github-api-version": "2022-11-28",
      },
      body,
    });
    return { status: response.status, headers: response.headers, body: await objectOf(response) };
  } catch (error) {
    signal.throwIfAborted();
    throw tell("GitHub could not be reached for a token - check the worker's network", {
      code: "CLONE_TOKEN",
      cause: error,
    });
  }
}

async function objectOf(response: Response): Promise<object> {
  const parts: Uint8Array[] = [];
  let size = 0;
  for await (const part of response.body ?? []) {
    parts.push(part as Uint8Array);
    size += part.length;
    if (size > MAX_ANSWER) break;
  }
  try {
    const value: unknown = JSON.parse(Buffer.concat(parts).toString("utf8"));
    return typeof value === "object" && value !== null ? value : {};
  } catch {
    return {};
  }
}

function refusal({ status, headers }: Answer): Error {
  if (
    status === 429 ||
    (status === 403 && (headers.has("retry-after") || headers.get("x-ratelimit-remaining") === "0"))
  ) {
    return tell("GitHub limits how often it may be asked - it is asked again later", { code: "CLONE_RATE_LIMITED" });
  }
  // The App is unknown, its key was replaced, the installation was removed or suspended.
  if (status === 401 || status === 403 || status === 404)
    return reconnect("github", new Error(`GitHub answered ${status}`));
  // The installation is there and may not see this repository, or no longer.
  if (status === 422) return notFound(new Error("GitHub answered 422"));
  return tell(`GitHub did not make a token (HTTP ${status}) - it is asked again`, { code: "CLONE_TOKEN" });
}
