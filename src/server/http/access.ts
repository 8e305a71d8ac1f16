// Access control. Every route declares an access class, every caller has an identity, and `isAllowed` decides.
import type { Role } from "../../client/tokens.ts";

/**
 * public    everyone
 * follow    readers, operators, admins; or a read token for that job or key
 * read      readers and operators, of a tenant or of the installation
 * operate   operators, of a tenant or of the installation
 * oversee   readers of the whole installation
 * manage    operators of the whole installation
 * admin     admins: they manage tokens, budgets and endpoints
 * tend      workers and operators: maintenance
 * measure   readers, workers and operators: metrics
 */
export type Access = "public" | "follow" | "read" | "operate" | "oversee" | "manage" | "admin" | "tend" | "measure";

export interface Identity {
  /** The actor in audit entries. */
  name: string;
  /** "follower" has a read token. */
  role: Role | "follower";
  /** Restricts the caller to the jobs of one tenant; null for all. */
  tenant: string | null;
  /** The id of the token. */
  id: string | null;
  /** What a read token gives access to. */
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

/** Classes that callers of one tenant may use; all others concern the whole installation. */
const tenantAccess: readonly Access[] = ["public", "follow", "read", "operate"];

export function isAllowed(access: Access, identity: Identity): boolean {
  if (access === "public") return true;
  return roles[access].includes(identity.role) && (identity.tenant === null || tenantAccess.includes(access));
}

/** Every caller of a server with auth "none". */
export const localAdmin: Identity = { name: "local", role: "admin", tenant: null, id: null, expiresAt: null };

/** A caller of a public route. */
export const anonymous: Identity = {
  name: "anonymous",
  role: "follower",
  tenant: null,
  id: null,
  scope: {},
  expiresAt: null,
};
