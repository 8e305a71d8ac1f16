// Who may come in, and what they did.
import { useState } from "react";
import { useSearchParams } from "wouter";
import { useTokens } from "../api/nouns.ts";
import { Button } from "../parts/button.tsx";
import { ShownOnce } from "../parts/copy.tsx";
import { PageHead } from "../parts/panel.tsx";
import { inert } from "../parts/words.ts";
import { ActPanel } from "./access/acts.tsx";
import { TokenForm } from "./access/token-form.tsx";
import { TokenPanel } from "./access/tokens.tsx";

export default function AccessPage() {
  const [made, setMade] = useState<{ name: string; token: string }>();
  const [isMaking, setMaking] = useState(false);
  const [filters, setFilters] = useSearchParams();
  const tokens = useTokens();
  return (
    <>
      <PageHead title="Access" note="Who may come in, and what they did">
        <Button kind="main" onClick={() => setMaking(true)}>
          Make a token…
        </Button>
      </PageHead>
      {made && (
        <ShownOnce
          key={made.token}
          title={`The token of ${inert(made.name)}`}
          what="token"
          secret={made.token}
          onAway={() => setMade(undefined)}
        >
          <p className="small">Whoever has it may do what its role may, until it expires or is revoked.</p>
        </ShownOnce>
      )}
      <TokenPanel tokens={tokens} />
      <ActPanel ready={!tokens.isPending} filters={filters} onFilter={setFilters} />
      {isMaking && <TokenForm onMade={setMade} onClose={() => setMaking(false)} />}
    </>
  );
}
