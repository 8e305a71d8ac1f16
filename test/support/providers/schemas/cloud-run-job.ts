// Validates a Cloud Run job file in the v1 format of `gcloud run jobs replace`: first against the v1 fields that we use, then,
// converted to v2 as Google does, against the same schemas as our API traffic.
import { parseAllDocuments } from "yaml";
import { z } from "zod";
import { type Description, getChecker } from "./check.ts";
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
            // An int64, which is a string in JSON.
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

/** Parses a file that must mean the same in YAML 1.1 and 1.2. */
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
      responses: {},
    },
  },
} as const satisfies Description;

/** Whether the official schema is available. */
export const officialIsAtHand = getChecker(description).official;

/** Problems by property. */
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
  return getChecker(description).request("makeJob", new URLSearchParams({ jobId: metadata.name }), asV2);
}

function variableAsV2(one: z.infer<typeof variable>): object {
  if ("value" in one) return one;
  const { name: secret, key: version } = one.valueFrom.secretKeyRef;
  return { name: one.name, valueSource: { secretKeyRef: { secret, version } } };
}
