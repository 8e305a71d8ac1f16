// Forms that are made of schemas: which fields there are, what is sent, and that nothing typed is lost on the way to JSON and back.
import { describe, expect, it } from "vitest";
import { z } from "zod";
import { begin, type Draft, draftOf, saidBy } from "../../web/src/parts/form/form-draft.ts";
import { type Field, fieldOf, type Json, type Schema } from "../../web/src/parts/form/form-model.ts";

const made = (schema: z.ZodType, sealed: string[] = []) =>
  fieldOf(z.toJSONSchema(schema, { io: "input" }) as unknown as Schema, sealed);

function member(field: Field, name: string): Field & { required: boolean } {
  if (field.kind !== "group") throw new Error(`${field.kind} has no members`);
  const found = field.members.find((one) => one.name === name)!;
  return { ...found.field, required: found.required };
}

function typed(draft: Draft, name: string, change: Partial<Draft>): Draft {
  return { ...draft, parts: { ...draft.parts, [name]: { ...draft.parts[name]!, ...change } } };
}

describe("a schema", () => {
  it("becomes a field of the fitting kind for each of its members, what is needed first", () => {
    const field = made(
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

  it("with alternatives is a choice where they are values, and variants where they are shapes", () => {
    const shapes = z.discriminatedUnion("kind", [
      z.object({ kind: z.literal("circle"), r: z.number() }),
      z.object({ kind: z.literal("square"), a: z.number() }),
    ]);
    expect(made(shapes)).toMatchObject({ kind: "variants", variants: [{ kind: "group" }, { kind: "group" }] });
    expect(made(z.union([z.literal("a"), z.literal("b"), z.null()]))).toMatchObject({
      kind: "choice",
      options: ["a", "b"],
      nullable: true,
    });
    expect(fieldOf({ type: ["string", "null"] })).toMatchObject({ kind: "text", nullable: true });
    expect(fieldOf({ type: ["string", "number"] })).toMatchObject({ kind: "variants" });
  });

  it("that is part of itself, leads nowhere or says what fields cannot is left to JSON there and nowhere else", () => {
    interface Tree {
      name: string;
      children: Tree[];
    }
    const tree: z.ZodType<Tree> = z.lazy(() => z.object({ name: z.string(), children: z.array(tree) }));
    const field = made(tree);
    expect(member(field, "name").kind).toBe("text");
    expect(JSON.stringify(field)).toContain('"kind":"json"');
    expect(JSON.stringify(field).length).toBeLessThan(10_000);
    expect(fieldOf({ $ref: "#/nowhere" }).kind).toBe("json");
    expect(fieldOf({ $ref: "https://elsewhere.example.com/schema" }).kind).toBe("json");
    expect(fieldOf({ $ref: "#/$defs/a", $defs: { a: { $ref: "#/$defs/a" } } }).kind).toBe("json");
    expect(fieldOf({ type: "array", prefixItems: [{ type: "string" }] }).kind).toBe("json");
    expect(fieldOf({ not: {} }).kind).toBe("json");
    expect(fieldOf(undefined).kind).toBe("json");
    expect(fieldOf(true).kind).toBe("json");
  });

  it("in parts that must all hold is one group", () => {
    const field = fieldOf({
      allOf: [
        { type: "object", properties: { a: { type: "string" } }, required: ["a"] },
        { type: "object", properties: { b: { type: "boolean" } } },
      ],
    });
    expect(member(field, "a")).toMatchObject({ kind: "text", required: true });
    expect(member(field, "b")).toMatchObject({ kind: "switch", required: false });
  });

  it("offers nothing to type where values are sealed, however deep", () => {
    const account = z.object({ user: z.string(), token: z.string() });
    const field = made(z.object({ key: z.string(), accounts: z.array(account) }), ["key", "accounts.*.token"]);
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
  const field = made(schema);

  it("begins with the defaults, and leaves out what may be left out", () => {
    const draft = typed(begin(field, true), "video", { text: "https://videos.example.com/1" });
    expect(saidBy(field, draft)).toEqual({
      value: { video: "https://videos.example.com/1", from: 0, seconds: 30, note: null },
      issues: [],
    });
  });

  it("says what is needed, by the path that the server would name", () => {
    const { issues } = saidBy(field, typed(begin(field, true), "crop", { as: "given" }));
    expect(issues.map(({ path }) => path)).toEqual(["input.video", "input.crop.width", "input.crop.height"]);
    const list = made(z.object({ ids: z.array(z.object({ id: z.string() })).min(2) }));
    expect(saidBy(list, begin(list, true)).issues.map(({ path }) => path)).toEqual([
      "input.ids[0].id",
      "input.ids[1].id",
    ]);
  });

  it("keeps half a number as it was typed and says what is wrong with it", () => {
    const wrong = (text: string) => saidBy(field, typed(begin(field, true), "seconds", { text })).issues[1]?.message;
    expect(wrong("12e")).toBe("This is not a number");
    expect(wrong("1.5")).toBe("This must be a whole number");
    expect(wrong("0")).toBe("This must be at least 1");
    expect(wrong("601")).toBe("This must be at most 600");
    expect(wrong(" 600 ")).toBeUndefined();
  });

  it("makes a value that can be made into a draft again, and the same value of that", () => {
    const values: Json[] = [
      { video: "https://a.example.com", from: 1.5, seconds: 3, note: "x" },
      { video: "https://a.example.com", note: null, loud: false, crop: { width: 3, height: 4 } },
      { video: "https://a.example.com", at: "2026-05-04T03:02:01.000Z" },
    ];
    for (const value of values) expect(saidBy(field, draftOf(field, value)!)).toEqual({ value, issues: [] });
  });

  it("is not made of a value that the fields cannot say, so that nothing of it is lost", () => {
    expect(draftOf(field, { video: "https://a.example.com", unknown: 1 })).toBeUndefined();
    expect(draftOf(field, { video: 7 })).toBeUndefined();
    expect(draftOf(field, { video: "" })).toBeUndefined();
    expect(draftOf(field, "text")).toBeUndefined();
    const sealed = made(z.object({ key: z.string() }), ["key"]);
    expect(draftOf(sealed, { key: { $secret: "github" } })).toBeUndefined();
  });

  it("is not made of a moment that its field would send back as another text", () => {
    const video = "https://a.example.com";
    for (const at of ["2026-05-04T03:02:01.123Z", "2026-05-04T05:02:01+02:00", "2026-05-04T03:02:01Z", "soon"]) {
      expect(draftOf(field, { video, at }), at).toBeUndefined();
    }
    expect(draftOf(field, { video, at: "2026-05-04T03:02:01.000Z" })).toBeDefined();
  });

  it("leaves a fixed value that may be left out to whoever fills it in", () => {
    const fixed = made(z.object({ name: z.string(), dry: z.literal(true).optional(), kind: z.literal("clip") }));
    const fresh = typed(begin(fixed, true), "name", { text: "a" });
    expect(saidBy(fixed, fresh).value).toEqual({ name: "a", kind: "clip" });
    const ticked = typed(fresh, "dry", { as: "given" });
    expect(saidBy(fixed, ticked)).toEqual({ value: { name: "a", kind: "clip", dry: true }, issues: [] });
    expect(saidBy(fixed, typed(ticked, "dry", { as: "left" })).value).toEqual({ name: "a", kind: "clip" });
    for (const value of [
      { name: "a", kind: "clip" },
      { name: "a", kind: "clip", dry: true },
    ]) {
      expect(saidBy(fixed, draftOf(fixed, value)!).value).toEqual(value);
    }
  });

  it("finds the variant that fits a value", () => {
    const either = made(
      z.object({ it: z.union([z.object({ r: z.number() }), z.object({ a: z.number() }), z.string()]) }),
    );
    for (const it of [{ a: 2 }, { r: 1 }, "text"]) {
      expect(saidBy(either, draftOf(either, { it })!)).toEqual({ value: { it }, issues: [] });
    }
  });

  it("takes a member called __proto__ for a member like any", () => {
    const odd = fieldOf(JSON.parse('{"type":"object","properties":{"__proto__":{"type":"string","default":"x"}}}'));
    const { value } = saidBy(odd, begin(odd, true));
    expect(JSON.stringify(value)).toBe('{"__proto__":"x"}');
  });

  it("is what the schema accepts, for every default a schema can have", () => {
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
    const drawn = made(all);
    const { value, issues } = saidBy(drawn, begin(drawn, true));
    expect(issues).toEqual([]);
    expect(value).toEqual(all.parse({}));
  });
});
