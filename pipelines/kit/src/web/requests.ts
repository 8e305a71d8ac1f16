// Parses requests: body, query and id in the path, each validated by a schema whose messages are shown to the client. Also
// the schemas that all APIs share; strict ones reject unknown fields.
import { z } from "zod";
import { invalid, Refusal } from "./problems.ts";

const MAX_BYTES = 64 * 1024;

export const isPrintable = (text: string) => !/\p{Cc}/u.test(text);
export const singleLine = (max: number) =>
  z
    .string({ error: "must be a string" })
    .trim()
    .min(1, "is empty")
    .max(max, `is longer than ${max} characters`)
    .refine(isPrintable, "contains control characters");
export const signInBody = z.strictObject({ token: z.string().min(1).max(1000) });
export const emptyBody = z.strictObject({}).optional();

const limit = z.coerce
  .number({ error: "must be a number from 1 to 200" })
  .int("must be an integer")
  .min(1, "must be at least 1")
  .max(200, "must be at most 200")
  .default(50);
export const pageQuery = z.strictObject({ limit, cursor: z.string().max(4000).optional() });

export function parseWith<Shape extends z.ZodType>(shape: Shape, value: unknown): z.output<Shape> {
  const { success, data, error } = shape.safeParse(value);
  if (success) return data;
  throw invalid(error);
}

/** The query parameters; of a repeated one the first. */
export function parseQuery<Shape extends z.ZodType>(shape: Shape, request: Request): z.output<Shape> {
  const entries = [...new URL(request.url).searchParams].filter(([, value]) => value !== "");
  return parseWith(shape, Object.fromEntries(entries.reverse()));
}

export function checkId(id: string, what: string): string {
  if (/^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$/i.test(id)) return id;
  throw new Refusal(404, "NOT_FOUND", `There is no such ${what}`, {
    remedy: `The path must contain the id of the ${what}`,
  });
}

/** The JSON body of a request. It is rejected while it is read once it is too large. */
export async function parseBody<Shape extends z.ZodType>(shape: Shape, request: Request): Promise<z.output<Shape>> {
  const tooLarge = () => new Refusal(413, "TOO_LARGE", `The body is larger than ${MAX_BYTES} bytes`);
  if (Number(request.headers.get("content-length") ?? 0) > MAX_BYTES) throw tooLarge();
  const chunks: Uint8Array[] = [];
  let size = 0;
  try {
    for await (const chunk of (request.body ?? []) as AsyncIterable<Uint8Array>) {
      size += chunk.length;
      if (size > MAX_BYTES) throw tooLarge();
      chunks.push(chunk);
    }
  } catch (error) {
    if (error instanceof Refusal) throw error;
    throw new Refusal(400, "INVALID_INPUT", "The body is incomplete", { field: "body", remedy: "Send the whole body" });
  }
  if (size === 0) return parseWith(shape, shape === (emptyBody as unknown) ? undefined : {});
  // A form of another site cannot send this content type without a CORS preflight.
  if (!/^application\/json\s*(;|$)/i.test(request.headers.get("content-type") ?? "")) {
    throw new Refusal(415, "NOT_JSON", "The content type is not JSON", {
      remedy: "Send content-type: application/json",
    });
  }
  let value: unknown;
  try {
    value = JSON.parse(new TextDecoder("utf-8", { fatal: true }).decode(Buffer.concat(chunks)));
  } catch {
    throw new Refusal(400, "INVALID_INPUT", "The body is not valid JSON in UTF-8", {
      field: "body",
      remedy: "Send one JSON object",
    });
  }
  return parseWith(shape, value);
}
