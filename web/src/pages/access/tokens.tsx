// The table of tokens. Their values are shown only when they are created.

import { useAction } from "@stillwake/ui/api/query.ts";
import type { RequestError } from "@stillwake/ui/api/request.ts";
import { escapeText } from "@stillwake/ui/format.ts";
import { ConfirmButton } from "@stillwake/ui/parts/button.tsx";
import { Empty, Loaded, Panel } from "@stillwake/ui/parts/panel.tsx";
import { type Column, Table } from "@stillwake/ui/parts/table.tsx";
import { RelativeTime, useNow } from "@stillwake/ui/parts/time.tsx";
import type { UseQueryResult } from "@tanstack/react-query";
import type { api } from "../../api/resources.ts";

const columns: Column<api.Token>[] = [
  {
    head: "Token",
    cell: ({ name, prefix }) => (
      <div className="lines">
        <span className="untrusted">{escapeText(name)}</span>
        <code className="soft untrusted">{escapeText(prefix)}…</code>
      </div>
    ),
  },
  {
    head: "Role",
    width: "20%",
    cell: (token) => (
      <div className="lines">
        <span>{token.role}</span>
        <span className="soft untrusted">{describeScope(token)}</span>
        <Limits token={token} />
      </div>
    ),
  },
  {
    head: "Last used",
    width: "104px",
    cell: ({ lastUsedAt }) => (lastUsedAt ? <RelativeTime at={lastUsedAt} /> : <Never />),
  },
  {
    head: "Created",
    width: "16%",
    cell: ({ createdAt, createdBy }) => (
      <div className="lines">
        <RelativeTime at={createdAt} />
        {createdBy !== null && <span className="soft untrusted">by {escapeText(createdBy)}</span>}
      </div>
    ),
  },
  { head: "Expires", width: "18%", cell: (token) => <Expiry token={token} /> },
  { head: "Actions", width: "112px", hideHead: true, cell: (token) => <Revoke token={token} /> },
];

/** What an operator may enqueue, if it differs from the default. */
function Limits({ token: { pipelines, pools, maxPriority } }: { token: api.Token }) {
  const limits = [
    pipelines && `enqueues ${pipelines.join(", ")}`,
    pools && `in ${pools.join(", ")}`,
    maxPriority !== null && `up to priority ${maxPriority}`,
  ].filter((limit) => limit !== null && limit !== false);
  return limits.length > 0 && <span className="soft untrusted">{escapeText(limits.join(", "))}</span>;
}

function describeScope({ role, tenant }: api.Token): string {
  if (tenant !== null) return `tenant ${escapeText(tenant)} only`;
  return role === "worker" ? "watchdog and metrics only" : "all tenants";
}

export function TokenPanel({ tokens }: { tokens: UseQueryResult<{ tokens: api.Token[] }, RequestError> }) {
  return (
    <Panel title="Tokens" bare>
      <Loaded query={tokens}>
        {({ tokens: rows }) =>
          rows.length === 0 ? (
            <Empty title="No tokens yet">
              <p>
                Without tokens the server accepts only local requests. Create one for each person and program before it
                listens on other addresses.
              </p>
            </Empty>
          ) : (
            <Table label="Tokens" columns={columns} rows={revokedLast(rows)} keyOf={({ id }) => id} />
          )
        }
      </Loaded>
    </Panel>
  );
}

function revokedLast(tokens: api.Token[]): api.Token[] {
  return [
    ...tokens.filter(({ revokedAt }) => revokedAt === null),
    ...tokens.filter(({ revokedAt }) => revokedAt !== null),
  ];
}

function Never() {
  return <span className="soft">never</span>;
}

function Expiry({ token: { revokedAt, revokedBy, expiresAt } }: { token: api.Token }) {
  const now = useNow();
  if (revokedAt !== null) {
    return (
      <div className="lines">
        <span className="tag" data-tone="bad">
          revoked
        </span>
        <span className="soft untrusted">
          <RelativeTime at={revokedAt} />
          {revokedBy !== null && ` by ${escapeText(revokedBy)}`}
        </span>
      </div>
    );
  }
  if (expiresAt === null) return <Never />;
  const isExpired = Date.parse(expiresAt) <= now;
  return (
    <div className="lines">
      {isExpired && (
        <span className="tag" data-tone="amber">
          expired
        </span>
      )}
      <RelativeTime at={expiresAt} />
    </div>
  );
}

function Revoke({ token: { id, name, revokedAt } }: { token: api.Token }) {
  const { run, busy } = useAction();
  if (revokedAt !== null) return null;
  return (
    <div className="actions">
      <ConfirmButton
        label="Revoke…"
        title={`Revoke token ${escapeText(name)}`}
        text="It is rejected from now on. This cannot be undone."
        confirm="Revoke"
        quiet
        disabled={busy}
        onConfirm={() => run({ method: "DELETE", path: `/v1/tokens/${id}`, done: `Token ${name} is revoked` })}
      />
    </div>
  );
}
