// Tokens, and the audit log.

import { escapeText } from "@stillwake/ui/format.ts";
import { Button } from "@stillwake/ui/parts/button.tsx";
import { PageHead } from "@stillwake/ui/parts/panel.tsx";
import { useState } from "react";
import { useSearchParams } from "wouter";
import { useTokens } from "../api/resources.ts";
import { ShownOnce } from "../parts/copy.tsx";
import { AuditPanel } from "./access/audit-log.tsx";
import { TokenForm } from "./access/token-form.tsx";
import { TokenPanel } from "./access/tokens.tsx";

export default function AccessPage() {
  const [created, setCreated] = useState<{ name: string; token: string }>();
  const [isCreating, setCreating] = useState(false);
  const [filters, setFilters] = useSearchParams();
  const tokens = useTokens();
  return (
    <>
      <PageHead title="Access" note="Tokens and audit log">
        <Button kind="main" onClick={() => setCreating(true)}>
          Create a token…
        </Button>
      </PageHead>
      {created && (
        <ShownOnce
          key={created.token}
          title={`Token of ${escapeText(created.name)}`}
          what="token"
          secret={created.token}
          onDismiss={() => setCreated(undefined)}
        >
          <p className="small">It grants the permissions of its role until it expires or is revoked.</p>
        </ShownOnce>
      )}
      <TokenPanel tokens={tokens} />
      <AuditPanel ready={!tokens.isPending} filters={filters} onFilter={setFilters} />
      {isCreating && <TokenForm onCreated={setCreated} onClose={() => setCreating(false)} />}
    </>
  );
}
