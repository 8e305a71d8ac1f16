// What a clone is refused with, where the words are the extraction's own.
import { type About, notFound, refusalOf as refusalOfGit } from "@stillwake/kit/git/refusals";
import { type Input, PROVIDER_NAMES } from "../contract.ts";
import { reconnect } from "./credentials.ts";
import { PURPOSE } from "./limits.ts";

export interface Cloning {
  input: Pick<Input, "provider"> & { branch?: string | undefined };
  limits: About["limits"];
  /** Its files are fetched again: this very commit is asked for. */
  commit?: string | undefined;
  /** No token was sent: there is none to renew, and providers answer so for what is private and for what is not there. */
  anonymous?: boolean;
}

/** What to throw instead. */
export function refusalOf(error: unknown, { input, limits, commit, anonymous }: Cloning): unknown {
  return refusalOfGit(error, {
    name: PROVIDER_NAMES[input.provider],
    branch: input.branch,
    commit: commit === undefined ? undefined : { id: commit, remedy: "start a new extraction" },
    limits,
    purpose: PURPOSE,
    movedRemedy: "change its name in the project's settings to the new one",
    reconnect: (cause) => (anonymous ? notFound(cause) : reconnect(input.provider, cause)),
  });
}
