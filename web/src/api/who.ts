// What the person in front of the page may do. It decides which buttons are there; the server decides again whether they work.
import { createContext, useContext } from "react";
import type { Me } from "./nouns.ts";

export interface May {
  /** Cancel, retry, enqueue. */
  operate: boolean;
  /** See pools, limits, schedules, webhooks: the installation, not a tenant's share in it. */
  oversee: boolean;
  /** Steer these. */
  manage: boolean;
  /** Tokens and endpoints. */
  admin: boolean;
}

export function mayOf({ role, tenant }: Pick<Me, "role" | "tenant">): May {
  const operates = role === "operator" || role === "admin";
  const whole = tenant === null;
  return { operate: operates, oversee: whole, manage: operates && whole, admin: role === "admin" && whole };
}

export const Who = createContext<{ me: Me; may: May }>({
  me: { name: "", role: "reader", tenant: null, expiresAt: null },
  may: { operate: false, oversee: false, manage: false, admin: false },
});

export const useMay = () => useContext(Who).may;
