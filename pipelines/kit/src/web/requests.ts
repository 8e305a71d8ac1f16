// How a request is read: its body, its question, the id in its address, each against a shape that has the sentence for somebody who got it wrong. The shapes that
// every API takes stand here too; strict ones refuse what they do not know.
import { z } from "zod";
import { invalid, Refusal } from "./problems.ts";

const MAX_BYTES = 64 * 1024;

export const storable = (text: string) => !/\p{Cc}/u.test(text);
export const line = (most: number) =>
  z
    .string({ error: "should be a text" })
    .trim()
    .min(1, "is empty")
    .max(most, `is longer than ${most} characters`)
    .refine(storable, "has control characters in it");
export const signIn = z.strictObject({ token: z.string().min(1).max(1000) });
export const nothing = z.strictObject({}).optional();

const limit = z.coerce
  .number({ error: "should be a number from 1 to 200" })
  .int("should be a whole number")
  .min(1, "should be 1 at least")
  .max(200, "should be 200 at most")
  .default(50);
export const page = z.strictObject({ limit, cursor: z.string().max(4000).optional() });

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
