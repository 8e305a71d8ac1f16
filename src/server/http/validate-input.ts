// Inputs that come over HTTP are held against the schema that the pipeline's contract was registered with, as the client holds them against the
// contract itself; defaults are filled in the same way. What the schema library cannot read back is accepted as it is.
import { z } from "zod";
import type { PipelineInfo } from "../../client/reader.ts";
import { withPlaceholders } from "../../contract/sealed-paths.ts";
import { InvalidInput } from "../../errors.ts";

/** Schemas that were read, by pipeline. */
export type KnownSchemas = Map<string, { at: number; schema: z.ZodType | undefined }>;

export function conform(known: KnownSchemas, info: PipelineInfo, input: unknown, at: string): unknown {
  const schema = schemaOf(known, info);
  if (!schema) return input;
  const shown = withPlaceholders(input, info.sealed);
  const result = schema.safeParse(shown.input);
  if (result.success) return shown.back(result.data);
  const issues = result.error.issues.map(({ path, message }) => ({
    path: path.reduce<string>((so, key) => (typeof key === "number" ? `${so}[${key}]` : `${so}.${String(key)}`), at),
    message,
  }));
  throw new InvalidInput(
    `Input for pipeline "${info.name}" is not valid: ${issues.map(({ path, message }) => `${path}: ${message}`).join("; ")}`,
    { issues, field: issues[0]?.path ?? at, remedy: "Change the input to fit the pipeline's schema" },
  );
}

function schemaOf(known: KnownSchemas, { name, inputSchema, updatedAt }: PipelineInfo): z.ZodType | undefined {
  const kept = known.get(name);
  if (kept?.at === updatedAt.getTime()) return kept.schema;
  let schema: z.ZodType | undefined;
  try {
    if (inputSchema) schema = z.fromJSONSchema(inputSchema as Parameters<typeof z.fromJSONSchema>[0]);
  } catch {}
  known.set(name, { at: updatedAt.getTime(), schema });
  return schema;
}
