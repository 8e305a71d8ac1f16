// Warns of a Fly token with a wider scope than the orchestrator needs, which is the machines of one app.

/** One token of GET /tokens/current. */
export interface TokenFacts {
  apps?: string[];
  organization?: string;
  org_slug?: string;
  user?: string;
  restricted_to_machine?: string;
}

export interface TokenCheck {
  token: string;
  app: string;
  /** The app this process runs in, if it runs on Fly. */
  ownApp: string | undefined;
  /** Undefined if Fly does not report them. */
  facts: readonly TokenFacts[] | undefined;
}

export function tokenWarnings({ token, app, ownApp, facts }: TokenCheck): string[] {
  const remedy = `Create one for this app only, with an expiry: \`fly tokens create deploy --app ${app} --expiry 2160h\``;
  const warnings: string[] = [];
  // The scope of a macaroon ("fm2_…") is not visible in its text; that of the older kind is.
  if (/^(FlyV1\s+)?fo1_/.test(token.trim()) || facts?.some(({ user }) => user)) {
    warnings.push(`The Fly token is a personal token with all rights of its user. ${remedy}`);
  } else if (facts?.some(({ apps }) => !apps || apps.length === 0)) {
    const organizationName = facts.map(({ organization, org_slug }) => organization ?? org_slug).find(Boolean);
    const suffix = organizationName ? ` "${organizationName}"` : "";
    warnings.push(`The Fly token is valid for every app of the organization${suffix}. ${remedy}`);
  } else if (facts?.some(({ apps }) => apps!.length > 1)) {
    warnings.push(
      `The Fly token is valid for several apps: ${facts.flatMap(({ apps }) => apps!).join(", ")}. ${remedy}`,
    );
  }
  if (facts?.some(({ restricted_to_machine: machine }) => machine)) {
    warnings.push(`The Fly token is restricted to one machine. ${remedy}`);
  }
  if (ownApp === app) {
    warnings.push(
      `The workers' app "${app}" is also the app of this orchestrator: every worker receives its secrets, including the token. Use a separate app for the workers`,
    );
  }
  return warnings;
}
