// Reads and validates the query and the body of a request.
import { z } from "zod";
import { findUnstorable } from "../../payload.ts";
import { httpError } from "./problem.ts";

const MAX_BYTES = 1024 * 1024;
const MAX_DEPTH = 64;
const MAX_VALUES = 10_000;

/** A repeated parameter is an error, not a list. */
export function readQuery(request: Request): Record<string, string> {
  const query: Record<string, string> = Object.create(null);
  for (const [name, value] of new URL(request.url).searchParams) {
    const field = name.slice(0, 100);
    if (name in query) {
      throw httpError("INVALID_INPUT", `Parameter ${field} is repeated`, { field, remedy: "Send it once" });
    }
    const bad = findUnstorable(value) ?? findUnstorable(name);
    if (bad) throw httpError("INVALID_INPUT", `Parameter ${field} contains ${bad}`, { field, remedy: "Remove it" });
    query[name] = value;
  }
  return { ...query };
}

/** The JSON body; undefined without one. Its size is limited while it is read, so that it is never buffered whole. */
export async function readJson(request: Request): Promise<unknown> {
  if (request.method === "GET" || request.body === null || request.headers.get("content-length") === "0")
    return undefined;
  const type = request.headers.get("content-type") ?? "";
  const isJson = /^application\/(json|[\w.+-]+\+json)\s*(;|$)/i.test(type);
  if (Number(request.headers.get("content-length") ?? 0) > MAX_BYTES) throw tooLarge();
  const chunks: Uint8Array[] = [];
  let size = 0;
  for await (const chunk of readChunks(request)) {
    size += chunk.length;
    if (size > 0 && !isJson) {
      throw httpError("NOT_JSON", "The content type of the body is not JSON", {
        remedy: "Send content-type: application/json",
      });
    }
    if (size > MAX_BYTES) throw tooLarge();
    chunks.push(chunk);
  }
  // A request without a body and without a content-length has an empty stream.
  if (size === 0) return undefined;
  let value: unknown;
  try {
    value = JSON.parse(new TextDecoder("utf-8", { fatal: true }).decode(Buffer.concat(chunks)));
  } catch {
    throw httpError("INVALID_INPUT", "The body is not valid JSON in UTF-8", {
      field: "body",
      remedy: "Send one JSON object",
    });
  }
  checkNesting(value);
  return value;
}

async function* readChunks(request: Request): AsyncGenerator<Uint8Array> {
  try {
    yield* (request.body ?? []) as AsyncIterable<Uint8Array>;
  } catch {
    throw httpError("INVALID_INPUT", "The body is incomplete", { field: "body", remedy: "Send all of it" });
  }
}

function tooLarge(): Error {
  return httpError("TOO_LARGE", `The body is larger than ${MAX_BYTES} bytes`, {
    remedy: "Send fewer jobs per request, or store large inputs elsewhere and send a reference",
  });
}

/** Iterative: a value that is nested too deeply must not overflow the stack. */
function checkNesting(root: unknown): void {
  let values = 0;
  const stack: { value: object; depth: number }[] = [];
  const push = (value: unknown, depth: number) => {
    if (typeof value !== "object" || value === null) return;
    if (depth > MAX_DEPTH)
      throw httpError("INVALID_INPUT", `The body is nested deeper than ${MAX_DEPTH} levels`, {
        field: "body",
        remedy: "Flatten it, or send it as text",
      });
    stack.push({ value, depth });
  };
  push(root, 1);
  for (let next = stack.pop(); next; next = stack.pop()) {
    const children = Object.values(next.value);
    values += children.length;
    if (values > MAX_VALUES)
      throw httpError("INVALID_INPUT", `The body has more than ${MAX_VALUES} values`, {
        field: "body",
        remedy: "Store it elsewhere and send a reference",
      });
    for (const child of children) push(child, next.depth + 1);
  }
}

/** Validates with the route's schema. A route without a query schema takes no parameters. */
export function validate(schema: z.ZodType | undefined, value: unknown, part: "query" | "body"): unknown {
  if (!schema) {
    const parameter = part === "query" ? Object.keys(value as object)[0]?.slice(0, 100) : undefined;
    if (parameter === undefined) return undefined;
    throw httpError("INVALID_INPUT", `Unknown parameter "${parameter}"`, { field: parameter, remedy: "See /docs" });
  }
  const result = schema.safeParse(value);
  if (result.success) return result.data;
  const issues = result.error.issues.slice(0, 20).map(({ path, message }) => ({
    path: path.map(String).join(".").slice(0, 200) || part,
    message: message.slice(0, 500),
  }));
  const [first] = issues;
  const error = httpError("INVALID_INPUT", `The ${part} is not valid: ${first?.path}: ${first?.message}`, {
    field: first?.path ?? part,
    remedy: "See /docs for the schema",
  });
  throw Object.assign(error, { issues });
}

export type InputSchema = z.ZodType;

/** The registered JSON Schema of a pipeline's input; undefined without one, or if zod cannot read it. */
export function readInputSchema(schema: unknown): InputSchema | undefined {
  try {
    return schema ? z.fromJSONSchema(schema as Parameters<typeof z.fromJSONSchema>[0]) : undefined;
  } catch {
    return undefined;
  }
}
