// What the signed-in user may do. This decides which pages and buttons are shown; the server checks every request.
import { createContext, useContext } from "react";
import type { Me } from "./resources.ts";

export interface Permissions {
  /** Cancel, retry and enqueue jobs. */
  operate: boolean;
  /** See pools, limits, schedules and webhooks, which belong to no tenant. */
  oversee: boolean;
  /** Change those. */
  manage: boolean;
  /** Tokens and endpoints. */
  admin: boolean;
}

export function permissionsOf({ role, tenant }: Pick<Me, "role" | "tenant">): Permissions {
  const isOperator = role === "operator" || role === "admin";
  const hasAllTenants = tenant === null;
  return {
    operate: isOperator,
    oversee: hasAllTenants,
    manage: isOperator && hasAllTenants,
    admin: role === "admin" && hasAllTenants,
  };
}

export const CurrentUser = createContext<{ me: Me; permissions: Permissions }>({
  me: { name: "", role: "reader", tenant: null, expiresAt: null },
  permissions: { operate: false, oversee: false, manage: false, admin: false },
});

export const usePermissions = () => useContext(CurrentUser).permissions;
