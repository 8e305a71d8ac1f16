// Webhooks: the endpoints that are notified when jobs end, and the deliveries.

import { escapeText } from "@stillwake/ui/format.ts";
import { PageHead } from "@stillwake/ui/parts/panel.tsx";
import { useState } from "react";
import { useSearchParams } from "wouter";
import { useEndpoints } from "../api/resources.ts";
import { ShownOnce } from "../parts/copy.tsx";
import "../css/webhooks.css";
import { EndpointPanel } from "./webhooks/endpoints.tsx";
import { WebhookPanel } from "./webhooks/webhook-list.tsx";

export interface EndpointSecret {
  endpoint: string;
  secret: string;
}

export default function WebhooksPage() {
  const endpoints = useEndpoints();
  const [secret, setSecret] = useState<EndpointSecret>();
  const [filters, setFilters] = useSearchParams();
  return (
    <>
      <PageHead title="Webhooks" note="Notifications when jobs end" />
      {secret && (
        <ShownOnce
          key={secret.secret}
          title={`Secret of endpoint ${escapeText(secret.endpoint)}`}
          what="secret"
          secret={secret.secret}
          onDismiss={() => setSecret(undefined)}
        >
          <p className="small">The receiver verifies the signatures of webhooks with it.</p>
        </ShownOnce>
      )}
      <EndpointPanel endpoints={endpoints} onSecret={setSecret} />
      <WebhookPanel
        ready={!endpoints.isPending}
        endpoints={endpoints.data?.endpoints ?? []}
        filters={filters}
        onFilter={setFilters}
      />
    </>
  );
}
