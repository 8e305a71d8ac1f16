// Who an e-mail address belongs to, in the order of what it costs: GitHub's own addresses say it themselves, what is known is read again, everybody else is
// searched for, and whoever is not found is the address and no more.
import type { GitHub, User } from "./github.ts";
import { namedBy } from "./noreply.ts";

/** An address of commit_data that nobody has been looked up for, or not for a day. */
export interface Address {
  email: string;
  /** As it stands in the newest commit. */
  name: string;
  /** The user it was last known by. */
  login: string | null;
  etag: string | null;
}

export interface Found {
  source: "noreply" | "search" | "email";
  login: string | null;
  githubId: number | null;
  name: string | null;
  etag: string | null;
}

/** GitHub takes 256 characters of words to search for. */
const LONGEST = 200;
/** Quotes, blanks and colons would be another question; what has no "@" and no domain is nobody's address. */
const SEARCHABLE = /^[^\s"\\:<>()@,;[\]]{1,64}@[a-z\d](?:[a-z\d-]*[a-z\d])?(?:\.[a-z\d](?:[a-z\d-]*[a-z\d])?)+$/;

export async function find({ email, name, login, etag }: Address, github: GitHub): Promise<Found> {
  const known = namedBy(email);
  if (known) return { source: "noreply", login: known.login, githubId: known.githubId ?? null, name, etag: null };
  if (login !== null) {
    const user = await github.user(login, etag);
    if (user === "unchanged") return { source: "search", login, githubId: null, name: null, etag };
    if (user) return userOf(user, name);
  }
  const user = SEARCHABLE.test(email) && email.length <= LONGEST ? await github.userByEmail(email) : undefined;
  return user ? userOf(user, name) : { source: "email", login: null, githubId: null, name, etag: null };
}

function userOf({ login, githubId, name, etag }: User, written: string): Found {
  return { source: "search", login, githubId, name: name ?? written, etag };
}
