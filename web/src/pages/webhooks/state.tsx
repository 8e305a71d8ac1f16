// The state of a webhook, and the time of its next delivery.

import { StateBadge } from "@stillwake/ui/parts/state-badge.tsx";
import { RelativeTime, useNow } from "@stillwake/ui/parts/time.tsx";
import type { api } from "../../api/resources.ts";

const badgeStates = { pending: "queued", delivered: "completed", failed: "failed" } as const;

export function WebhookBadge({ state }: { state: api.Webhook["state"] }) {
  return <StateBadge state={badgeStates[state]}>{state}</StateBadge>;
}

/** A running sender delivers within seconds. */
const OVERDUE_MS = 60_000;

export function useOverdue(nextAt: string | null): boolean {
  return useNow() - (nextAt === null ? Number.POSITIVE_INFINITY : Date.parse(nextAt)) > OVERDUE_MS;
}

export function NextDelivery({ at, held }: { at: string | null; held: boolean }) {
  const isOverdue = useOverdue(at);
  if (held) return <span className="tag">held</span>;
  return (
    <div className="lines">
      <RelativeTime at={at} />
      {isOverdue && (
        <span className="tag" data-tone="amber">
          overdue
        </span>
      )}
    </div>
  );
}
