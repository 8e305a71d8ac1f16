// What people paste, as the one address of a repository: there is one record for each, however it was written.
import { REPOSITORY } from "./contract.ts";

export interface Named {
  /** "acme/site", in small letters: GitHub takes no notice of others. */
  repository: string;
  /** "https://github.com/acme/site" */
  url: string;
}

const HOST = "github.com";
const LONGEST = 400;
/** Steps up or in place, written out or not: a browser takes them away, and what is left is not what somebody has read. */
const STEPS = /(?:^|[/\\:])(?:\.|%2e){1,2}(?:[/\\?#]|$)/i;

/** A sentence about what is wrong with it, where it is none. */
export function normalise(text: string): Named | { wrong: string } {
  const given = text.trim();
  if (given === "") return { wrong: "is empty" };
  if (given.length > LONGEST) return { wrong: `is longer than ${LONGEST} characters` };
  // Of an address, some of them would be passed over.
  if (/\p{Cc}/u.test(given)) return { wrong: "has control characters in it" };
  const place = STEPS.test(given) ? undefined : placeOf(given);
  if (!place) return { wrong: "is no address of a repository" };
  if (place.host !== HOST && place.host !== `www.${HOST}`)
    return { wrong: `names ${shown(place.host)}, and contributors can be looked up at ${HOST} alone` };
  const [owner = "", name = "", ...more] = place.path.split("/").filter(Boolean);
  const repository = `${owner}/${name.replace(/(?:\.git)+$/i, "")}`.toLowerCase();
  // What a browser shows below a repository: a branch, a file, its issues.
  if (!REPOSITORY.test(repository) || (more.length > 0 && place.form !== "web"))
    return { wrong: "does not name a repository: an owner and a name are needed" };
  return { repository, url: `https://${HOST}/${repository}` };
}

interface Place {
  host: string;
  path: string;
  form: "web" | "ssh" | "short";
}

function placeOf(text: string): Place | undefined {
  const ssh = /^(?:ssh:\/\/)?git@([\w.-]+)[:/]([\w./-]+)$/i.exec(text);
  if (ssh) return { host: ssh[1]!.toLowerCase(), path: ssh[2]!, form: "ssh" };
  // One word, or a path that begins with one, is no host either.
  if (/^(?:[\w.-]+\/[\w.-]+\/?|[\w-]+(?:\/[\w./-]*)?)$/.test(text) && !/^(?:www\.)?github\.com\//i.test(text))
    return { host: HOST, path: text, form: "short" };
  const address = /^[a-z][a-z\d+.-]*:/i.test(text) ? text : `https://${text}`;
  if (!URL.canParse(address)) return undefined;
  const { protocol, hostname, pathname, username, password, port } = new URL(address);
  // A user or a password in an address is a secret that must not be stored; git is given neither.
  if (!["https:", "http:", "git:"].includes(protocol) || !hostname || username || password || port) return undefined;
  return { host: hostname.toLowerCase(), path: pathname, form: "web" };
}

function shown(host: string): string {
  return host.length > 60 ? `${host.slice(0, 60)}…` : host;
}
