// Parses the URL forms that people paste into one canonical URL per repository.
import { REPOSITORY } from "./contract.ts";

export interface RepositoryName {
  /** "acme/site" in lower case: GitHub ignores case. */
  repository: string;
  /** "https://github.com/acme/site" */
  url: string;
}

const HOST = "github.com";
const MAX_LENGTH = 400;
/** "." and ".." segments, also escaped: URL parsing would remove them silently. */
const DOT_SEGMENTS = /(?:^|[/\\:])(?:\.|%2e){1,2}(?:[/\\?#]|$)/i;

/** `problem`: why it is not a repository URL. */
export function parseRepositoryUrl(text: string): RepositoryName | { problem: string } {
  const url = text.trim();
  if (url === "") return { problem: "is empty" };
  if (url.length > MAX_LENGTH) return { problem: `is longer than ${MAX_LENGTH} characters` };
  // URL parsing would remove some of them silently.
  if (/\p{Cc}/u.test(url)) return { problem: "contains control characters" };
  const parts = DOT_SEGMENTS.test(url) ? undefined : splitUrl(url);
  if (!parts) return { problem: "is not a repository URL" };
  if (parts.host !== HOST && parts.host !== `www.${HOST}`)
    return { problem: `is a URL of ${shorten(parts.host)}, but only repositories of ${HOST} are supported` };
  const [owner = "", name = "", ...more] = parts.path.split("/").filter(Boolean);
  const repository = `${owner}/${name.replace(/(?:\.git)+$/i, "")}`.toLowerCase();
  // Web URLs may continue below the repository: a branch, a file, its issues.
  if (!REPOSITORY.test(repository) || (more.length > 0 && parts.form !== "web"))
    return { problem: "must contain an owner and a repository name" };
  return { repository, url: `https://${HOST}/${repository}` };
}

interface SplitUrl {
  host: string;
  path: string;
  form: "web" | "ssh" | "short";
}

function splitUrl(text: string): SplitUrl | undefined {
  const ssh = /^(?:ssh:\/\/)?git@([\w.-]+)[:/]([\w./-]+)$/i.exec(text);
  if (ssh) return { host: ssh[1]!.toLowerCase(), path: ssh[2]!, form: "ssh" };
  // A word without a dot is not a host.
  if (/^(?:[\w.-]+\/[\w.-]+\/?|[\w-]+(?:\/[\w./-]*)?)$/.test(text) && !/^(?:www\.)?github\.com\//i.test(text))
    return { host: HOST, path: text, form: "short" };
  const address = /^[a-z][a-z\d+.-]*:/i.test(text) ? text : `https://${text}`;
  if (!URL.canParse(address)) return undefined;
  const { protocol, hostname, pathname, username, password, port } = new URL(address);
  // A user or password in the URL is a secret that must not be stored.
  if (!["https:", "http:", "git:"].includes(protocol) || !hostname || username || password || port) return undefined;
  return { host: hostname.toLowerCase(), path: pathname, form: "web" };
}

function shorten(host: string): string {
  return host.length > 60 ? `${host.slice(0, 60)}…` : host;
}
