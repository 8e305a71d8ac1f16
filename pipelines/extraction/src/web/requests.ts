// What the API takes: the shapes of bodies and of questions, each with the sentence for somebody who got it wrong. Bodies are strict: what is not known is refused
// rather than ignored, an organization above all, which is never the caller's to name.
import { z } from "zod";
import { PACKAGE_PATH, PROVIDER_NAMES, PROVIDERS, REPOSITORY } from "../contract.ts";
import { SEVERITIES } from "../model.ts";
import { invalid, Refusal } from "./problems.ts";

const MOST_BYTES = 64 * 1024;

const names = Object.values(PROVIDER_NAMES).join(", ");
const provider = z.enum(PROVIDERS, { error: `is none of ${PROVIDERS.join(", ")} (${names})` });
const storable = (text: string) => !/\p{Cc}/u.test(text);
const line = (most: number) =>
  z
    .string({ error: "should be a text" })
    .trim()
    .min(1, "is empty")
    .max(most, `is longer than ${most} characters`)
    .refine(storable, "has control characters in it");
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

export const newProject = z.strictObject({
  name: line(200).optional(),
  provider: provider.default("github"),
  repository: line(400).regex(REPOSITORY, "is not the full name of a repository, such as acme/site"),
  branch: branch.optional(),
  packagePath: packagePath.default("."),
  ecosystem: line(40).optional(),
  installationId: z
    .string()
    .regex(/^\d{1,20}$/, "is not the number of an installation")
    .optional(),
  integrationId: z.uuid("is not the id of an integration").optional(),
  extract: z.boolean({ error: "should be true or false" }).default(true),
});

export const changedProject = z
  .strictObject({
    name: line(200).optional(),
    branch: branch.nullable().optional(),
    packagePath: packagePath.optional(),
  })
  .refine((given) => Object.keys(given).length > 0, "says nothing to change: name, branch or packagePath");

export const newIntegration = z.strictObject({
  provider: z.enum(["gitlab", "bitbucket"], {
    error: "is neither gitlab nor bitbucket; GitHub needs none: install the App and give installationId",
  }),
  name: line(200),
  credential: z
    .string({ error: "should be a text" })
    .min(8, "is shorter than 8 characters")
    .max(4096, "is longer than 4096 characters")
    .refine(storable, "has control characters in it"),
});

export const signIn = z.strictObject({ token: z.string().min(1).max(1000) });
export const nothing = z.strictObject({}).optional();

const limit = z.coerce
  .number({ error: "should be a number from 1 to 200" })
  .int("should be a whole number")
  .min(1, "should be 1 at least")
  .max(200, "should be 200 at most")
  .default(50);
const flag = z.enum(["true", "false"], { error: "should be true or false" }).transform((text) => text === "true");
const search = z.string().max(200, "is longer than 200 characters").refine(storable, "has control characters in it");
const severity = z
  .string()
  .transform((text) => text.split(","))
  .pipe(z.array(z.enum(SEVERITIES, { error: `is none of ${SEVERITIES.join(", ")}` })).max(5));

export const page = z.strictObject({ limit, cursor: z.string().max(4000).optional() });
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

export function checked<Shape extends z.ZodType>(shape: Shape, given: unknown): z.output<Shape> {
  const { success, data, error } = shape.safeParse(given);
  if (success) return data;
  throw invalid(error);
}

/** The question of an address; the first of what is said twice. */
export function asked<Shape extends z.ZodType>(shape: Shape, request: Request): z.output<Shape> {
  const entries = [...new URL(request.url).searchParams].filter(([, value]) => value !== "");
  return checked(shape, Object.fromEntries(entries.reverse()));
}

export function checkId(id: string, what: string): string {
  if (/^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$/i.test(id)) return id;
  throw new Refusal(404, "NOT_FOUND", `There is no such ${what}`, { remedy: `The address has no id of a ${what}` });
}

/** The body of a request as JSON, refused while it is read: one without end is never held. */
export async function body<Shape extends z.ZodType>(shape: Shape, request: Request): Promise<z.output<Shape>> {
  const tooLarge = () => new Refusal(413, "TOO_LARGE", `The body is larger than ${MOST_BYTES} bytes`);
  if (Number(request.headers.get("content-length") ?? 0) > MOST_BYTES) throw tooLarge();
  const chunks: Uint8Array[] = [];
  let size = 0;
  try {
    for await (const chunk of (request.body ?? []) as AsyncIterable<Uint8Array>) {
      size += chunk.length;
      if (size > MOST_BYTES) throw tooLarge();
      chunks.push(chunk);
    }
  } catch (error) {
    if (error instanceof Refusal) throw error;
    throw new Refusal(400, "INVALID_INPUT", "The body broke off", { field: "body", remedy: "Send all of it" });
  }
  if (size === 0) return checked(shape, shape === (nothing as unknown) ? undefined : {});
  // A form of another site can send text, but cannot say that it is JSON without asking first.
  if (!/^application\/json\s*(;|$)/i.test(request.headers.get("content-type") ?? "")) {
    throw new Refusal(415, "NOT_JSON", "The body is not said to be JSON", {
      remedy: "Send content-type: application/json",
    });
  }
  let value: unknown;
  try {
    value = JSON.parse(new TextDecoder("utf-8", { fatal: true }).decode(Buffer.concat(chunks)));
  } catch {
    throw new Refusal(400, "INVALID_INPUT", "The body is not JSON in UTF-8", {
      field: "body",
      remedy: "Send one JSON object",
    });
  }
  return checked(shape, value);
}
