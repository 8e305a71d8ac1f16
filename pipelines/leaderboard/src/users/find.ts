// Who an e-mail address belongs to, by asking GitHub: what was known is read again, everybody else is searched for, and whoever is not found is the address and no more.
// What needs no question was settled when the batches were dealt out.
import type { GitHub, User } from "./github.ts";

/** An address of commit_data that nobody has been looked up for, or not for a day. */
export interface Address {
  email: string;
  /** The user it was last known by. */
  login: string | null;
  githubId: number | null;
  etag: string | null;
}

export interface Found {
  source: "search" | "email";
  login: string | null;
  githubId: number | null;
  name: string | null;
  etag: string | null;
}

/** GitHub takes 256 characters of words to search for. */
const LONGEST = 200;
/** Quotes, blanks and colons would be another question; what has no "@" and no domain is nobody's address. */
const SEARCHABLE = /^[^\s"\\:<>()@,;[\]]{1,64}@[a-z\d](?:[a-z\d-]*[a-z\d])?(?:\.[a-z\d](?:[a-z\d-]*[a-z\d])?)+$/;

export async function find({ email, login, githubId, etag }: Address, github: GitHub): Promise<Found> {
  if (login !== null) {
    const user = await github.user(login, etag);
    if (user === "unchanged") return { source: "search", login, githubId, name: null, etag };
    // A name that was given up may be somebody else's by now.
    if (user && (githubId === null || user.githubId === githubId)) return userOf(user);
  }
  const user = SEARCHABLE.test(email) && email.length <= LONGEST ? await github.userByEmail(email) : undefined;
  return user ? userOf(user) : { source: "email", login: null, githubId: null, name: null, etag: null };
}

function userOf(user: User): Found {
  return { source: "search", ...user };
}
