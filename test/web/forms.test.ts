// Forms from schemas: their fields, the value that is sent, and that nothing typed is lost between fields and JSON.
import { describe, expect, it } from "vitest";
import { z } from "zod";
import { createDraft, type Draft, draftFromValue, readDraft } from "../../web/src/parts/form/form-draft.ts";
import { type Field, type Json, type Schema, schemaToField } from "../../web/src/parts/form/form-model.ts";

const toField = (schema: z.ZodType, sealed: string[] = []) =>
  schemaToField(z.toJSONSchema(schema, { io: "input" }) as unknown as Schema, sealed);

function member(field: Field, name: string): Field & { required: boolean } {
  if (field.kind !== "group") throw new Error(`${field.kind} has no members`);
  const found = field.members.find((candidate) => candidate.name === name)!;
  return { ...found.field, required: found.required };
}

function withPart(draft: Draft, name: string, change: Partial<Draft>): Draft {
  return { ...draft, parts: { ...draft.parts, [name]: { ...draft.parts[name]!, ...change } } };
}

describe("a schema", () => {
  it("has a field of the matching kind for each member, required members first", () => {
    const field = toField(
      z.object({
        maybe: z.string().optional(),
        name: z.string().min(2).max(40).describe("Who it is"),
        count: z.int().min(1).max(9),
        share: z.number().gt(0),
        on: z.boolean(),
        depth: z.enum(["quick", "full"]),
        kind: z.literal("clip"),
        mail: z.email(),
        tags: z.array(z.string()).min(1).max(3),
        inner: z.object({ deep: z.uuid() }),
        note: z.string().nullable(),
        free: z.record(z.string(), z.number()),
      }),
    );
    expect(field.kind === "group" && field.members.at(-1)?.name).toBe("maybe");
    expect(member(field, "name")).toMatchObject({
      kind: "text",
      minLength: 2,
      maxLength: 40,
      description: "Who it is",
    });
    expect(member(field, "count")).toEqual({
      kind: "number",
      integer: true,
      min: 1,
      max: 9,
      nullable: false,
      required: true,
    });
    expect(member(field, "share")).toMatchObject({ kind: "number", integer: false, above: 0 });
    expect(member(field, "on").kind).toBe("switch");
    expect(member(field, "depth")).toMatchObject({ kind: "choice", options: ["quick", "full"] });
    expect(member(field, "kind")).toMatchObject({ kind: "fixed", value: "clip" });
    expect(member(field, "mail")).toMatchObject({ kind: "text", format: "email" });
    expect(member(field, "tags")).toMatchObject({ kind: "list", min: 1, max: 3, item: { kind: "text" } });
    expect(member(member(field, "inner"), "deep")).toMatchObject({ kind: "text", format: "uuid" });
    expect(member(field, "note")).toMatchObject({ kind: "text", nullable: true });
    expect(member(field, "free").kind).toBe("json");
    expect(member(field, "maybe").required).toBe(false);
  });

  it("with alternatives is a choice of values or a set of variants", () => {
    const shapes = z.discriminatedUnion("kind", [
      z.object({ kind: z.literal("circle"), r: z.number() }),
      z.object({ kind: z.literal("square"), a: z.number() }),
    ]);
    expect(toField(shapes)).toMatchObject({ kind: "variants", variants: [{ kind: "group" }, { kind: "group" }] });
    expect(toField(z.union([z.literal("a"), z.literal("b"), z.null()]))).toMatchObject({
      kind: "choice",
      options: ["a", "b"],
      nullable: true,
    });
    expect(schemaToField({ type: ["string", "null"] })).toMatchObject({ kind: "text", nullable: true });
    expect(schemaToField({ type: ["string", "number"] })).toMatchObject({ kind: "variants" });
  });

  it("that contains itself, cannot be resolved or has no field kind becomes a JSON field in that part only", () => {
    interface Tree {
      name: string;
      children: Tree[];
    }
    const tree: z.ZodType<Tree> = z.lazy(() => z.object({ name: z.string(), children: z.array(tree) }));
    const field = toField(tree);
    expect(member(field, "name").kind).toBe("text");
    expect(JSON.stringify(field)).toContain('"kind":"json"');
    expect(JSON.stringify(field).length).toBeLessThan(10_000);
    expect(schemaToField({ $ref: "#/nowhere" }).kind).toBe("json");
    expect(schemaToField({ $ref: "https://elsewhere.example.com/schema" }).kind).toBe("json");
    expect(schemaToField({ $ref: "#/$defs/a", $defs: { a: { $ref: "#/$defs/a" } } }).kind).toBe("json");
    expect(schemaToField({ type: "array", prefixItems: [{ type: "string" }] }).kind).toBe("json");
    expect(schemaToField({ not: {} }).kind).toBe("json");
    expect(schemaToField(undefined).kind).toBe("json");
    expect(schemaToField(true).kind).toBe("json");
  });

  it("with allOf is one group", () => {
    const field = schemaToField({
      allOf: [
        { type: "object", properties: { a: { type: "string" } }, required: ["a"] },
        { type: "object", properties: { b: { type: "boolean" } } },
      ],
    });
    expect(member(field, "a")).toMatchObject({ kind: "text", required: true });
    expect(member(field, "b")).toMatchObject({ kind: "switch", required: false });
  });

  it("has no input for sealed values at any depth", () => {
    const account = z.object({ user: z.string(), token: z.string() });
    const field = toField(z.object({ key: z.string(), accounts: z.array(account) }), ["key", "accounts.*.token"]);
    expect(member(field, "key").kind).toBe("sealed");
    const accounts = member(field, "accounts");
    expect(accounts.kind === "list" && member(accounts.item, "token").kind).toBe("sealed");
    expect(accounts.kind === "list" && member(accounts.item, "user").kind).toBe("text");
  });
});

describe("a draft", () => {
  const schema = z.object({
    video: z.url(),
    from: z.number().min(0).default(0),
    seconds: z.int().min(1).max(600).default(30),
    loud: z.boolean().optional(),
    at: z.iso.datetime().optional(),
    crop: z.object({ width: z.int(), height: z.int() }).optional(),
    note: z.string().nullable().default(null),
  });
  const field = toField(schema);

  it("starts with the defaults and omits optional fields", () => {
    const draft = withPart(createDraft(field, true), "video", { text: "https://videos.example.com/1" });
    expect(readDraft(field, draft)).toEqual({
      value: { video: "https://videos.example.com/1", from: 0, seconds: 30, note: null },
      issues: [],
    });
  });

  it("reports missing fields by the path that the server uses", () => {
    const { issues } = readDraft(field, withPart(createDraft(field, true), "crop", { as: "value" }));
    expect(issues.map(({ path }) => path)).toEqual(["input.video", "input.crop.width", "input.crop.height"]);
    const list = toField(z.object({ ids: z.array(z.object({ id: z.string() })).min(2) }));
    expect(readDraft(list, createDraft(list, true)).issues.map(({ path }) => path)).toEqual([
      "input.ids[0].id",
      "input.ids[1].id",
    ]);
  });

  it("keeps an invalid number as typed and reports what is invalid", () => {
    const message = (text: string) =>
      readDraft(field, withPart(createDraft(field, true), "seconds", { text })).issues[1]?.message;
    expect(message("12e")).toBe("This is not a number");
    expect(message("1.5")).toBe("This must be a whole number");
    expect(message("0")).toBe("This must be at least 1");
    expect(message("601")).toBe("This must be at most 600");
    expect(message(" 600 ")).toBeUndefined();
  });

  it("converts to a value and back without a change", () => {
    const values: Json[] = [
      { video: "https://a.example.com", from: 1.5, seconds: 3, note: "x" },
      { video: "https://a.example.com", note: null, loud: false, crop: { width: 3, height: 4 } },
      { video: "https://a.example.com", at: "2026-05-04T03:02:01.000Z" },
    ];
    for (const value of values) expect(readDraft(field, draftFromValue(field, value)!)).toEqual({ value, issues: [] });
  });

  it("is not created from a value that the fields cannot represent", () => {
    expect(draftFromValue(field, { video: "https://a.example.com", unknown: 1 })).toBeUndefined();
    expect(draftFromValue(field, { video: 7 })).toBeUndefined();
    expect(draftFromValue(field, { video: "" })).toBeUndefined();
    expect(draftFromValue(field, "text")).toBeUndefined();
    const sealed = toField(z.object({ key: z.string() }), ["key"]);
    expect(draftFromValue(sealed, { key: { $secret: "github" } })).toBeUndefined();
  });

  it("is not created from a time that its field would send in another form", () => {
    const video = "https://a.example.com";
    for (const at of ["2026-05-04T03:02:01.123Z", "2026-05-04T05:02:01+02:00", "2026-05-04T03:02:01Z", "soon"]) {
      expect(draftFromValue(field, { video, at }), at).toBeUndefined();
    }
    expect(draftFromValue(field, { video, at: "2026-05-04T03:02:01.000Z" })).toBeDefined();
  });

  it("sends an optional fixed value only if it is checked", () => {
    const fixed = toField(z.object({ name: z.string(), dry: z.literal(true).optional(), kind: z.literal("clip") }));
    const fresh = withPart(createDraft(fixed, true), "name", { text: "a" });
    expect(readDraft(fixed, fresh).value).toEqual({ name: "a", kind: "clip" });
    const ticked = withPart(fresh, "dry", { as: "value" });
    expect(readDraft(fixed, ticked)).toEqual({ value: { name: "a", kind: "clip", dry: true }, issues: [] });
    expect(readDraft(fixed, withPart(ticked, "dry", { as: "omitted" })).value).toEqual({ name: "a", kind: "clip" });
    for (const value of [
      { name: "a", kind: "clip" },
      { name: "a", kind: "clip", dry: true },
    ] as Json[]) {
      expect(readDraft(fixed, draftFromValue(fixed, value)!).value).toEqual(value);
    }
  });

  it("finds the variant that matches a value", () => {
    const either = toField(
      z.object({ it: z.union([z.object({ r: z.number() }), z.object({ a: z.number() }), z.string()]) }),
    );
    for (const it of [{ a: 2 }, { r: 1 }, "text"] as Json[]) {
      expect(readDraft(either, draftFromValue(either, { it })!)).toEqual({ value: { it }, issues: [] });
    }
  });

  it("supports a member named __proto__", () => {
    const odd = schemaToField(
      JSON.parse('{"type":"object","properties":{"__proto__":{"type":"string","default":"x"}}}'),
    );
    const { value } = readDraft(odd, createDraft(odd, true));
    expect(JSON.stringify(value)).toBe('{"__proto__":"x"}');
  });

  it("has the value that the schema produces for every kind of default", () => {
    const all = z.object({
      text: z.string().default("a"),
      number: z.number().default(1.5),
      yes: z.boolean().default(true),
      one: z.enum(["a", "b"]).default("b"),
      list: z.array(z.int()).default([1, 2]),
      inner: z.object({ a: z.string().default("x") }).default({ a: "y" }),
      free: z.record(z.string(), z.number()).default({ k: 1 }),
      nothing: z.string().nullable().default(null),
    });
    const drawn = toField(all);
    const { value, issues } = readDraft(drawn, createDraft(drawn, true));
    expect(issues).toEqual([]);
    expect(value).toEqual(all.parse({}));
  });
});
