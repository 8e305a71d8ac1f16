// What can be told of a Fly token before it is used. One that may do more than start machines of one app is more than an orchestrator needs, and whoever
// gets hold of it can do all of that too.

/** What GET /tokens/current tells of one token. */
export interface TokenFacts {
  apps?: string[];
  organization?: string;
  org_slug?: string;
  user?: string;
  restricted_to_machine?: string;
}

export interface TokenQuestion {
  token: string;
  app: string;
  /** The app that this process runs in, if it runs on Fly. */
  ownApp: string | undefined;
  /** What Fly tells of it; undefined when Fly does not tell. */
  facts: readonly TokenFacts[] | undefined;
}

export function tokenWarnings({ token, app, ownApp, facts }: TokenQuestion): string[] {
  const remedy = `Make one for this app alone, with an end: \`fly tokens create deploy --app ${app} --expiry 2160h\``;
  const warnings: string[] = [];
  // A macaroon ("fm2_…") does not tell by its text what it may do; the older kind does.
  if (/^(FlyV1\s+)?fo1_/.test(token.trim()) || facts?.some(({ user }) => user)) {
    warnings.push(`The Fly token is a person's own and may do all that they may. ${remedy}`);
  } else if (facts?.some(({ apps }) => !apps || apps.length === 0)) {
    const whose = facts.map(({ organization, org_slug }) => organization ?? org_slug).find(Boolean);
    const of = whose ? ` "${whose}"` : "";
    warnings.push(`The Fly token is good for every app of the organization${of}. ${remedy}`);
  } else if (facts?.some(({ apps }) => apps!.length > 1)) {
    warnings.push(
      `The Fly token is good for several apps: ${facts.flatMap(({ apps }) => apps!).join(", ")}. ${remedy}`,
    );
  }
  if (facts?.some(({ restricted_to_machine: machine }) => machine)) {
    warnings.push(`The Fly token only counts on one machine. ${remedy}`);
  }
  if (ownApp === app) {
    warnings.push(
      `The workers' app "${app}" is the app that this orchestrator runs in: its secrets, the token among them, reach every worker. Give the workers an app of their own`,
    );
  }
  return warnings;
}
