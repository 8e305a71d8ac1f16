// What the API takes: the shapes of bodies and of questions, each with the sentence for somebody who got it wrong. Bodies are strict: what is not known is refused
// rather than ignored, an organization above all, which is never the caller's to name.
import { REPOSITORY } from "@stillwake/kit/git/repository";
import { line, page, storable } from "@stillwake/kit/web/requests";
import { z } from "zod";
import { PACKAGE_PATH, PROVIDER_NAMES, PROVIDERS } from "../contract.ts";
import { SEVERITIES } from "../model.ts";

const names = Object.values(PROVIDER_NAMES).join(", ");
const provider = z.enum(PROVIDERS, { error: `is none of ${PROVIDERS.join(", ")} (${names})` });
const branch = line(250)
  // As git has it: no option, no range, nothing that a shell or a ref could take for something else.
  .refine(
    (text) => !/^[-/.]|\.\.|[\s~^:?*[\\]|@\{|\/\/|[/.]$|\.lock$/.test(text),
    "is not a name that a branch can have",
  );
const packagePath = line(1000).regex(
  PACKAGE_PATH,
  'is not a path inside the repository: write "." for all of it, or such as packages/api, without ".." or a slash in front',
);

const repository = line(400)
  // As addresses of clones end, and names of repositories do not: providers asked for a token know it by its name alone.
  .overwrite((text) => text.replace(/\.git$/, ""))
  .refine(
    (text) => REPOSITORY.test(text) && !text.endsWith(".git"),
    "is not the full name of a repository, such as acme/site",
  );
const installationId = z
  .string({ error: "should be a text" })
  .regex(/^\d{1,20}$/, "is not the number of an installation");
const integrationId = z.uuid("is not the id of an integration");

export const newProject = z.strictObject({
  name: line(200).optional(),
  provider: provider.default("github"),
  repository,
  branch: branch.optional(),
  packagePath: packagePath.default("."),
  ecosystem: line(40).optional(),
  installationId: installationId.optional(),
  integrationId: integrationId.optional(),
  extract: z.boolean({ error: "should be true or false" }).default(true),
});

export const changedProject = z
  .strictObject({
    name: line(200).optional(),
    repository: repository.optional(),
    branch: branch.nullable().optional(),
    packagePath: packagePath.optional(),
    installationId: installationId.nullable().optional(),
    integrationId: integrationId.nullable().optional(),
  })
  .refine(
    (given) => Object.keys(given).length > 0,
    "says nothing to change: name, repository, branch, packagePath, installationId or integrationId",
  );

const credential = z
  .string({ error: "should be a text" })
  .min(8, "is shorter than 8 characters")
  .max(4096, "is longer than 4096 characters")
  .refine(storable, "has control characters in it");

export const newIntegration = z.strictObject({
  provider: z.enum(["gitlab", "bitbucket"], {
    error: "is neither gitlab nor bitbucket; GitHub needs none: install the App and give installationId",
  }),
  name: line(200),
  credential,
});
export const replacedCredential = z.strictObject({ credential, name: line(200).optional() });

const flag = z.enum(["true", "false"], { error: "should be true or false" }).transform((text) => text === "true");
const search = z.string().max(200, "is longer than 200 characters").refine(storable, "has control characters in it");
const severity = z
  .string()
  .transform((text) => text.split(","))
  .pipe(z.array(z.enum(SEVERITIES, { error: `is none of ${SEVERITIES.join(", ")}` })).max(5));

export const dependenciesAsked = page.extend({
  direct: flag.optional(),
  ecosystem: search.optional(),
  q: search.optional(),
});
export const vulnerabilitiesAsked = page.extend({
  severity: severity.optional(),
  kev: flag.optional(),
  reachable: flag.optional(),
  q: search.optional(),
});
export const findingsAsked = page.extend({
  kind: z.enum(["code", "secret"], { error: "should be code or secret" }).optional(),
  severity: severity.optional(),
  q: search.optional(),
});

export type NewProject = z.output<typeof newProject>;
export type ChangedProject = z.output<typeof changedProject>;
export type NewIntegration = z.output<typeof newIntegration>;
export type ReplacedCredential = z.output<typeof replacedCredential>;
