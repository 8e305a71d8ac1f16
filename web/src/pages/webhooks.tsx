// Webhooks: whom the end of jobs is told to, and what became of each telling.
import { useState } from "react";
import { useSearchParams } from "wouter";
import { useEndpoints } from "../api/nouns.ts";
import { ShownOnce } from "../parts/copy.tsx";
import { PageHead } from "../parts/panel.tsx";
import { inert } from "../parts/words.ts";
import "../look/webhooks.css";
import { EndpointPanel } from "./webhooks/endpoints.tsx";
import { WebhookPanel } from "./webhooks/list.tsx";

export interface Secret {
  endpoint: string;
  secret: string;
}

export default function WebhooksPage() {
  const endpoints = useEndpoints();
  const [secret, setSecret] = useState<Secret>();
  const [filters, setFilters] = useSearchParams();
  return (
    <>
      <PageHead title="Webhooks" note="Who is told when a job ends" />
      {secret && (
        <ShownOnce
          key={secret.secret}
          title={`The secret of the endpoint ${inert(secret.endpoint)}`}
          what="secret"
          secret={secret.secret}
          onAway={() => setSecret(undefined)}
        >
          <p className="small">Whoever receives its webhooks verifies with it that they come from here.</p>
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
