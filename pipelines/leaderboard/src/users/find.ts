// Finds the GitHub user of an e-mail address: a known user is read again, others are searched by address. Addresses that need
// no call were settled when the batches were assigned.
import type { GitHub, User } from "./github.ts";

/** An address of commit_data that was not looked up in the last day. */
export interface Address {
  email: string;
  /** The user it belonged to at the last look-up. */
  login: string | null;
  githubId: number | null;
  etag: string | null;
}

export interface LookupResult {
  source: "search" | "email";
  login: string | null;
  githubId: number | null;
  name: string | null;
  etag: string | null;
}

/** GitHub's limit for a search is 256 characters. */
const MAX_QUERY = 200;
/** Quotes, spaces and colons would change the search; an address needs an "@" and a domain. */
const SEARCHABLE = /^[^\s"\\:<>()@,;[\]]{1,64}@[a-z\d](?:[a-z\d-]*[a-z\d])?(?:\.[a-z\d](?:[a-z\d-]*[a-z\d])?)+$/;

export async function findUser({ email, login, githubId, etag }: Address, github: GitHub): Promise<LookupResult> {
  if (login !== null) {
    const user = await github.user(login, etag);
    if (user === "unchanged") return { source: "search", login, githubId, name: null, etag };
    // A released login may belong to another user now.
    if (user && (githubId === null || user.githubId === githubId)) return toFound(user);
  }
  const user = SEARCHABLE.test(email) && email.length <= MAX_QUERY ? await github.userByEmail(email) : undefined;
  return user ? toFound(user) : { source: "email", login: null, githubId: null, name: null, etag: null };
}

function toFound(user: User): LookupResult {
  return { source: "search", ...user };
}
