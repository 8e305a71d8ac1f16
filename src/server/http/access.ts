// Who may do what. Every route declares one of these classes; a caller is an identity; `may` is the whole law.
import type { Role } from "../../client/tokens.ts";

/**
 * public    everybody
 * follow    who may read, or has a read token for that job or key
 * read      readers and operators, of a tenant or of the whole
 * operate   operators, of a tenant or of the whole
 * oversee   readers of the whole installation
 * manage    operators of the whole installation
 * admin     who gives out tokens and addresses
 * tend      who keeps the installation going: workers, operators
 * measure   who collects its numbers: readers, workers, operators
 */
export type Access = "public" | "follow" | "read" | "operate" | "oversee" | "manage" | "admin" | "tend" | "measure";

export interface Identity {
  /** How it is called in the record of acts. */
  name: string;
  /** "follower" has a read token. */
  role: Role | "follower";
  /** Whose jobs it may see; null for everybody's. */
  tenant: string | null;
  /** Of its token. */
  id: string | null;
  /** What a read token opens. */
  scope?: { job?: string; pipeline?: string; key?: string; tenant?: string };
  expiresAt: Date | null;
}

const roles: Record<Exclude<Access, "public">, readonly Identity["role"][]> = {
  follow: ["follower", "reader", "operator", "admin"],
  read: ["reader", "operator", "admin"],
  operate: ["operator", "admin"],
  oversee: ["reader", "operator", "admin"],
  manage: ["operator", "admin"],
  admin: ["admin"],
  tend: ["worker", "operator", "admin"],
  measure: ["reader", "worker", "operator", "admin"],
};

/** What a tenant has a share in; everything else is the installation's. */
const shared: readonly Access[] = ["public", "follow", "read", "operate"];

export function may(access: Access, identity: Identity): boolean {
  if (access === "public") return true;
  return roles[access].includes(identity.role) && (identity.tenant === null || shared.includes(access));
}

/** For servers without tokens. */
export const somebody: Identity = { name: "local", role: "admin", tenant: null, id: null, expiresAt: null };

/** Whoever comes to a public route without a token. */
export const nobody: Identity = {
  name: "nobody",
  role: "follower",
  tenant: null,
  id: null,
  scope: {},
  expiresAt: null,
};
