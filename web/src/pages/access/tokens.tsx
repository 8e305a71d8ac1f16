// Tokens: never the words themselves, which are shown when they are made and never again.
import type { UseQueryResult } from "@tanstack/react-query";
import { useAct } from "../../api/ask.ts";
import type { Refused } from "../../api/call.ts";
import type { nouns } from "../../api/nouns.ts";
import { Ask } from "../../parts/button.tsx";
import { Moment, useNow } from "../../parts/moment.tsx";
import { Asked, Empty, Panel } from "../../parts/panel.tsx";
import { type Column, Table } from "../../parts/table.tsx";
import { inert } from "../../parts/words.ts";

const columns: Column<nouns.Token>[] = [
  {
    head: "Token",
    cell: ({ name, prefix }) => (
      <div className="lines">
        <span className="foreign">{inert(name)}</span>
        <code className="soft foreign">{inert(prefix)}…</code>
      </div>
    ),
  },
  {
    head: "May",
    width: "20%",
    cell: ({ role, tenant }) => (
      <div className="lines">
        <span>{role}</span>
        <span className="soft foreign">{scopeOf(role, tenant)}</span>
      </div>
    ),
  },
  {
    head: "Last used",
    width: "104px",
    cell: ({ lastUsedAt }) => (lastUsedAt ? <Moment at={lastUsedAt} /> : <Never />),
  },
  {
    head: "Made",
    width: "16%",
    cell: ({ createdAt, createdBy }) => (
      <div className="lines">
        <Moment at={createdAt} />
        {createdBy !== null && <span className="soft foreign">by {inert(createdBy)}</span>}
      </div>
    ),
  },
  { head: "Ends", width: "18%", cell: (token) => <Ends token={token} /> },
  { head: "Acts", width: "112px", quiet: true, cell: (token) => <Revoke token={token} /> },
];

function scopeOf(role: nouns.Token["role"], tenant: string | null): string {
  if (tenant !== null) return `of tenant ${inert(tenant)} alone`;
  return role === "worker" ? "watchdog and metrics alone" : "of all tenants";
}

export function TokenPanel({ tokens }: { tokens: UseQueryResult<{ tokens: nouns.Token[] }, Refused> }) {
  return (
    <Panel title="Tokens" bare>
      <Asked of={tokens}>
        {(answer) =>
          answer.tokens.length === 0 ? (
            <Empty title="No token yet">
              <p>
                Without tokens a server lets in only who is on this machine. Make one for each person and program before
                it listens elsewhere.
              </p>
            </Empty>
          ) : (
            <Table label="Tokens" columns={columns} rows={byUse(answer.tokens)} keyOf={({ id }) => id} />
          )
        }
      </Asked>
    </Panel>
  );
}

/** Those that are revoked come last. */
function byUse(tokens: nouns.Token[]): nouns.Token[] {
  return [
    ...tokens.filter(({ revokedAt }) => revokedAt === null),
    ...tokens.filter(({ revokedAt }) => revokedAt !== null),
  ];
}

function Never() {
  return <span className="soft">never</span>;
}

function Ends({ token: { revokedAt, revokedBy, expiresAt } }: { token: nouns.Token }) {
  const now = useNow();
  if (revokedAt !== null) {
    return (
      <div className="lines">
        <span className="tag" data-tone="bad">
          revoked
        </span>
        <span className="soft foreign">
          <Moment at={revokedAt} />
          {revokedBy !== null && ` by ${inert(revokedBy)}`}
        </span>
      </div>
    );
  }
  if (expiresAt === null) return <Never />;
  const isOver = Date.parse(expiresAt) <= now;
  return (
    <div className="lines">
      {isOver && (
        <span className="tag" data-tone="amber">
          expired
        </span>
      )}
      <Moment at={expiresAt} />
    </div>
  );
}

function Revoke({ token: { id, name, revokedAt } }: { token: nouns.Token }) {
  const { act, busy } = useAct();
  if (revokedAt !== null) return null;
  return (
    <div className="acts">
      <Ask
        label="Revoke…"
        title={`Revoke the token ${inert(name)}`}
        text="Whoever uses it is sent away at once, and it never opens anything again. This cannot be undone."
        yes="Revoke it"
        quiet
        disabled={busy}
        onYes={() => act({ method: "DELETE", path: `/v1/tokens/${id}`, done: `The token ${name} is revoked` })}
      />
    </div>
  );
}
