// A job of Cloud Run as a file, in the form of v1 that `gcloud run jobs replace` takes. The names of v1 are held to a list of those that we use; what the file says is then
// put into the words of v2, as Google does it, and held to the same descriptions as our traffic: the condensed one always, the official one where it is at hand.
import { parseAllDocuments } from "yaml";
import { z } from "zod";
import { checkerOf, type Description } from "./check.ts";
import { cloudRunDescription } from "./cloud-run.ts";

const text = z.string().min(1);
const variable = z.union([
  z.strictObject({ name: text, value: text }),
  z.strictObject({
    name: text,
    valueFrom: z.strictObject({ secretKeyRef: z.strictObject({ name: text, key: text }) }),
  }),
]);

const container = z.strictObject({
  image: text,
  args: z.array(text),
  env: z.array(variable),
  resources: z.strictObject({ limits: z.strictObject({ cpu: text, memory: text }) }),
});

const job = z.strictObject({
  apiVersion: z.literal("run.googleapis.com/v1"),
  kind: z.literal("Job"),
  metadata: z.strictObject({
    name: z.string().regex(/^[a-z][a-z0-9-]{0,47}[a-z0-9]$/),
    labels: z.record(text, text),
  }),
  spec: z.strictObject({
    template: z.strictObject({
      spec: z.strictObject({
        taskCount: z.int(),
        parallelism: z.int(),
        template: z.strictObject({
          spec: z.strictObject({
            maxRetries: z.int(),
            // An int64, which is a text in JSON.
            timeoutSeconds: z.string().regex(/^\d+$/),
            serviceAccountName: z.string().regex(/^[a-z0-9-]+@[a-z0-9-]+\.iam\.gserviceaccount\.com$/),
            containers: z.tuple([container]),
          }),
        }),
      }),
    }),
  }),
});

type CloudRunJob = z.infer<typeof job>;

/** Reads one file, as YAML 1.1 and 1.2 alike, by whichever of them a program goes. */
export function readCloudRunJob(yaml: string): CloudRunJob {
  const [older, newer] = (["1.1", "1.2"] as const).map((version) => {
    const documents = parseAllDocuments(yaml, { version });
    const wrong = documents.flatMap((document) => [...document.errors, ...document.warnings]);
    if (documents.length !== 1 || wrong.length > 0) throw new Error(`It is not one document of YAML: ${wrong}`);
    return documents[0]!.toJS();
  });
  if (JSON.stringify(older) !== JSON.stringify(newer)) throw new Error("YAML 1.1 and 1.2 read it differently");
  return job.parse(newer);
}

const { body } = cloudRunDescription.operations.patchJob;
const { template } = body.properties;

const description = {
  name: "Cloud Run, jobs as files",
  official: cloudRunDescription.official,
  errors: {},
  operations: {
    makeJob: {
      method: "POST",
      path: "/v2/projects/{project}/locations/{location}/jobs",
      query: { jobId: { type: "string" } },
      body: {
        ...body,
        properties: {
          ...body.properties,
          template: {
            ...template,
            properties: { ...template.properties, parallelism: { type: "integer", const: 1 } },
          },
        },
      },
      answers: {},
    },
  },
} as const satisfies Description;

/** Whether the official description is at hand. */
export const officialIsAtHand = checkerOf(description).official;

/** What is wrong with it, named by property. */
export function wrongInCloudRunJob({ metadata, spec }: CloudRunJob): string[] {
  const { template: task, ...execution } = spec.template.spec;
  const { maxRetries, timeoutSeconds, serviceAccountName, containers } = task.spec;
  const asV2 = {
    labels: metadata.labels,
    template: {
      ...execution,
      template: {
        maxRetries,
        timeout: `${timeoutSeconds}s`,
        serviceAccount: serviceAccountName,
        containers: containers.map(({ env, ...rest }) => ({ ...rest, env: env.map(variableAsV2) })),
      },
    },
  };
  return checkerOf(description).request("makeJob", new URLSearchParams({ jobId: metadata.name }), asV2);
}

function variableAsV2(one: z.infer<typeof variable>): object {
  if ("value" in one) return one;
  const { name: secret, key: version } = one.valueFrom.secretKeyRef;
  return { name: one.name, valueSource: { secretKeyRef: { secret, version } } };
}
