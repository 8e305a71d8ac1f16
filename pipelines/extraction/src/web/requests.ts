// Schemas of the API's bodies and queries, with their error messages. Bodies are strict: unknown fields are rejected, above
// all an organization, which the server sets.
import { REPOSITORY } from "@stillwake/kit/git/repository";
import { isPrintable, pageQuery, singleLine } from "@stillwake/kit/web/requests";
import { z } from "zod";
import { PACKAGE_PATH, PROVIDER_NAMES, PROVIDERS } from "../contract.ts";
import { SEVERITIES } from "../model.ts";

const names = Object.values(PROVIDER_NAMES).join(", ");
const provider = z.enum(PROVIDERS, { error: `must be one of ${PROVIDERS.join(", ")} (${names})` });
const branch = singleLine(250)
  // Git's rules for branch names.
  .refine((text) => !/^[-/.]|\.\.|[\s~^:?*[\\]|@\{|\/\/|[/.]$|\.lock$/.test(text), "is not a valid branch name");
const packagePath = singleLine(1000).regex(
  PACKAGE_PATH,
  'must be a path inside the repository such as packages/api, without ".." or a leading slash; "." is all of it',
);

const repository = singleLine(400)
  // Clone URLs end with .git, but the APIs of the providers expect the name without it.
  .overwrite((text) => text.replace(/\.git$/, ""))
  .refine(
    (text) => REPOSITORY.test(text) && !text.endsWith(".git"),
    "must be the full name of a repository, such as acme/site",
  );
const installationId = z
  .string({ error: "must be a string" })
  .regex(/^\d{1,20}$/, "must be the number of an installation");
const integrationId = z.uuid("must be the id of an integration");

export const newProject = z.strictObject({
  name: singleLine(200).optional(),
  provider: provider.default("github"),
  repository,
  branch: branch.optional(),
  packagePath: packagePath.default("."),
  ecosystem: singleLine(40).optional(),
  installationId: installationId.optional(),
  integrationId: integrationId.optional(),
  extract: z.boolean({ error: "must be true or false" }).default(true),
});

export const projectChange = z
  .strictObject({
    name: singleLine(200).optional(),
    repository: repository.optional(),
    branch: branch.nullable().optional(),
    packagePath: packagePath.optional(),
    installationId: installationId.nullable().optional(),
    integrationId: integrationId.nullable().optional(),
  })
  .refine(
    (change) => Object.keys(change).length > 0,
    "must change at least one of name, repository, branch, packagePath, installationId, integrationId",
  );

const credential = z
  .string({ error: "must be a string" })
  .min(8, "is shorter than 8 characters")
  .max(4096, "is longer than 4096 characters")
  .refine(isPrintable, "contains control characters");

export const newIntegration = z.strictObject({
  provider: z.enum(["gitlab", "bitbucket"], {
    error: "must be gitlab or bitbucket. GitHub needs no integration: install the App and set installationId",
  }),
  name: singleLine(200),
  credential,
});
export const credentialChange = z.strictObject({ credential, name: singleLine(200).optional() });

const flag = z.enum(["true", "false"], { error: "must be true or false" }).transform((text) => text === "true");
const search = z.string().max(200, "is longer than 200 characters").refine(isPrintable, "contains control characters");
const severity = z
  .string()
  .transform((text) => text.split(","))
  .pipe(z.array(z.enum(SEVERITIES, { error: `must be one of ${SEVERITIES.join(", ")}` })).max(5));

export const dependenciesQuery = pageQuery.extend({
  direct: flag.optional(),
  ecosystem: search.optional(),
  q: search.optional(),
});
export const vulnerabilitiesQuery = pageQuery.extend({
  severity: severity.optional(),
  kev: flag.optional(),
  reachable: flag.optional(),
  q: search.optional(),
});
export const findingsQuery = pageQuery.extend({
  kind: z.enum(["code", "secret"], { error: "must be code or secret" }).optional(),
  severity: severity.optional(),
  q: search.optional(),
});

export type NewProject = z.output<typeof newProject>;
export type ProjectChange = z.output<typeof projectChange>;
export type NewIntegration = z.output<typeof newIntegration>;
export type CredentialChange = z.output<typeof credentialChange>;
