// Access control. Every route declares an access class, every caller has an identity, and `isAllowed` decides.
import type { Role } from "../../client/tokens.ts";
import { httpError } from "./problem.ts";

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
  /** What the caller may enqueue, if it differs from the default. */
  limits?: EnqueueLimits;
}

/** What a caller may enqueue. The pool and the priority of the pipeline itself are always allowed. */
export interface EnqueueLimits {
  /** Default: any pipeline. */
  pipelines?: readonly string[];
  /** Default: no other pool for a tenant's caller, any for others. */
  pools?: readonly string[];
  /** Default: 0 for a tenant's caller, 1000 for others. */
  maxPriority?: number;
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

/** The name under which requests at once are counted: all tokens of a tenant together. */
export function callerName({ tenant, id, name }: Identity): string {
  return tenant === null ? (id ?? name) : `tenant ${tenant}`;
}

/** Before the pipeline is looked up, so that the error does not tell whether it exists. */
export function checkPipelineLimit({ limits }: Identity, pipeline: string): void {
  if (!limits?.pipelines || limits.pipelines.includes(pipeline)) return;
  throw httpError("FORBIDDEN", `This token may not enqueue ${JSON.stringify(pipeline)}`, {
    field: "pipeline",
    remedy: `It may enqueue ${limits.pipelines.join(", ")}; ask an admin for another token`,
  });
}

export function checkEnqueueLimits(
  { limits, tenant }: Identity,
  pipeline: { pool: string; priority: number },
  { pool, priority }: { pool?: string | undefined; priority?: number | undefined },
): void {
  const pools = limits?.pools ?? (tenant === null ? undefined : []);
  if (pool !== undefined && pool !== pipeline.pool && pools && !pools.includes(pool)) {
    throw httpError("FORBIDDEN", `This token may not choose the pool ${JSON.stringify(pool)}`, {
      field: "pool",
      remedy: `Leave pool out${pools.length > 0 ? `, or use ${pools.join(", ")}` : ""}; an admin can create a token with other pools`,
    });
  }
  const maxPriority = Math.max(pipeline.priority, limits?.maxPriority ?? (tenant === null ? 1000 : 0));
  if (priority !== undefined && priority > maxPriority) {
    throw httpError("FORBIDDEN", `This token may not choose a priority above ${maxPriority}`, {
      field: "priority",
      remedy: `Use at most ${maxPriority}, or leave priority out; an admin can create a token with another maxPriority`,
    });
  }
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
