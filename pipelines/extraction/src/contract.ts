// The contract of an extraction: input, output and policies of its job. No Node and no database, because the page imports it.
import { REPOSITORY } from "@stillwake/kit/git/repository";
import { pipeline } from "stillwake/contract";
import { z } from "zod";

export const PROVIDERS = ["github", "gitlab", "bitbucket"] as const;
export type Provider = (typeof PROVIDERS)[number];

/** Display names. */
export const PROVIDER_NAMES: Record<Provider, string> = { github: "GitHub", gitlab: "GitLab", bitbucket: "Bitbucket" };

/** A path below the repository, or "." for all of it: no "..", no leading slash, no backslash. */
export const PACKAGE_PATH = /^(?:\.|(?!\.{1,2}(?:\/|$))[^/\\\0]+(?:\/(?!\.{1,2}(?:\/|$))[^/\\\0]+)*)$/;

export const input = z.object({
  projectId: z.uuid().meta({ title: "Project" }),
  organizationId: z.uuid().meta({ title: "Organization" }),
  provider: z.enum(PROVIDERS).default("github").meta({ title: "Provider" }),
  repository: z
    .string()
    .max(400)
    .regex(REPOSITORY)
    .meta({ title: "Repository", description: "Its full name, such as acme/site." }),
  /** Undefined: the default branch of the remote. */
  branch: z.string().min(1).max(250).optional().meta({ title: "Branch" }),
  packagePath: z
    .string()
    .max(1000)
    .regex(PACKAGE_PATH)
    .default(".")
    .meta({ title: "Package path", description: "The folder with the manifest." }),
  ecosystem: z.string().max(40).optional().meta({ title: "Ecosystem" }),
  /** GitHub: the App installation for which the worker creates a token. */
  installationId: z
    .string()
    .regex(/^\d{1,20}$/)
    .optional()
    .meta({ title: "Installation" }),
  /** GitLab and Bitbucket: the integration that the credential belongs to. */
  integrationId: z.uuid().optional().meta({ title: "Integration" }),
  /** Token of the integration, sealed: only workers can read it. */
  credential: z.string().min(8).max(4096).optional().meta({ title: "Credential" }),
});

const output = z.object({
  commit: z.string(),
  dependencies: z.object({ direct: z.number(), transitive: z.number() }),
  vulnerabilities: z.object({ total: z.number(), critical: z.number() }).nullable(),
  /** How many dependencies were checked for vulnerabilities, and why the others were not. Null: not known. */
  coverage: z.object({ checked: z.number(), total: z.number(), notes: z.array(z.string()) }).nullable(),
  findings: z.number().nullable(),
  secrets: z.number().nullable(),
  reports: z.array(z.string()),
});

export type Input = z.output<typeof input>;
export type Output = z.output<typeof output>;

const ATTEMPTS = 3;

export const extraction = pipeline("extraction", {
  input,
  output,
  sealed: ["credential"],
  // One active extraction per project: another request returns the active one.
  key: "projectId",
  tenant: "organizationId",
  pool: "scan",
  retry: {
    attempts: ATTEMPTS,
    crashes: ATTEMPTS,
    initial: "5s",
    max: "2m",
    exhausted: "Extraction failed after {attempts} attempts (machine crash or timeout)",
  },
  // More than the sum of the steps' time limits (about an hour), so that a slow step fails with its own message.
  timeout: "90m",
  silence: "10m",
  // How long logs and reports can be read.
  keep: { completed: "90d", failed: "90d", cancelled: "90d" },
});
