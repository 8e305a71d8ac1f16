// The library creates and checks tokens and read tokens.
import { describe, expect, it } from "vitest";
import { checkReadToken, checkSecrets, signReadToken } from "../../src/client/read-token.ts";
import { travel } from "../../src/testing/index.ts";
import { connectedDatabase } from "../support/database/connections.ts";
import { signed } from "../support/server/callers.ts";

const { database, stillwake: sw, client } = await connectedDatabase();
const ID = "01a1e107-2508-7182-ae66-db7bbe9aa49e";

describe("a token", () => {
  it("has 256 bits and a prefix, is returned once, and the database stores only its hash", async () => {
    const { id, token } = await sw.tokens.create({ name: "ci", role: "operator" }, { by: "ann" });
    expect(token).toMatch(/^swt_[\w-]{43}$/);
    const { rows } = await client.query("select t::text as row from stillwake.tokens t where id = $1", [id]);
    expect(rows[0].row).not.toContain(token.slice(10));
    const [listed] = await sw.tokens.list();
    expect(listed).toMatchObject({
      id,
      name: "ci",
      role: "operator",
      prefix: token.slice(0, 8),
      createdBy: "ann",
      lastUsedAt: null,
    });
    expect(JSON.stringify(await sw.tokens.list())).not.toContain(token.slice(10));
  });

  it("is accepted until it is revoked, and its last use is stored", async () => {
    const { id, token } = await sw.tokens.create({ name: "one", role: "reader", tenant: "acme" });
    expect(await sw.tokens.check(token)).toMatchObject({ id, name: "one", role: "reader", tenant: "acme" });
    expect((await sw.tokens.list()).find((token) => token.id === id)!.lastUsedAt).toBeInstanceOf(Date);
    await sw.tokens.revoke(id, { by: "ann" });
    expect(await sw.tokens.check(token)).toBeUndefined();
    expect((await sw.tokens.list()).find((token) => token.id === id)).toMatchObject({ revokedBy: "ann" });
  });

  it("carries what it may enqueue", async () => {
    const limits = { pipelines: ["scan"], pools: ["gpu"], maxPriority: 10 };
    const { id, token } = await sw.tokens.create({ name: "limited", role: "operator", ...limits });
    expect(await sw.tokens.check(token)).toMatchObject(limits);
    expect((await sw.tokens.list()).find((listed) => listed.id === id)).toMatchObject(limits);
  });

  it("is rejected after its expiry by the database's clock, and if a character differs", async () => {
    const { token } = await sw.tokens.create({ name: "short", role: "reader", expiresIn: "1h" });
    expect(await sw.tokens.check(`${token.slice(0, -1)}${token.endsWith("A") ? "B" : "A"}`)).toBeUndefined();
    expect(await sw.tokens.check(token)).toBeDefined();
    await travel(database.url, "61m");
    expect(await sw.tokens.check(token)).toBeUndefined();
  });

  it.each([
    [{ name: "", role: "reader" }, "name"],
    [{ name: "x", role: "root" }, "role"],
    [{ name: "x", role: "admin", tenant: "acme" }, "role"],
    [{ name: "x", role: "worker", tenant: "acme" }, "role"],
    [{ name: "x", role: "reader", pipelines: ["work"] }, "role"],
    [{ name: "x", role: "admin", maxPriority: 5 }, "role"],
    [{ name: "x", role: "operator", pipelines: [] }, "pipelines"],
    [{ name: "x", role: "operator", pools: ["Not A Pool"] }, "pools"],
    [{ name: "x", role: "operator", maxPriority: 1001 }, "maxPriority"],
    [{ name: "x", role: "reader", expiresIn: "0s" }, "expiresIn"],
    [{ name: "x", role: "reader", expiresIn: "soon" }, "expiresIn"],
  ])("with invalid options is rejected: %j", async (options, field) => {
    await expect(sw.tokens.create(options as never)).rejects.toMatchObject({ code: "INVALID_INPUT", field });
  });

  it("that does not exist cannot be revoked", async () => {
    await expect(sw.tokens.revoke(ID)).rejects.toMatchObject({ code: "TOKEN_NOT_FOUND" });
    await expect(sw.tokens.revoke("x")).rejects.toMatchObject({ code: "INVALID_INPUT" });
  });
});

describe("a read token", () => {
  const secrets = ["first secret of thirty-two characters!", "second secret of thirty-two characters"];

  it("gives access to one job, or one key of a pipeline, until it expires", () => {
    expect(checkReadToken(secrets, signReadToken(secrets, { job: ID }))).toEqual({
      job: ID,
      expiresAt: expect.any(Date),
    });
    const token = signReadToken(secrets, { pipeline: "scan", key: "project-1", expiresIn: "24h" });
    expect(checkReadToken(secrets, token)).toMatchObject({ pipeline: "scan", key: "project-1" });
    expect(checkReadToken(secrets, signed({ j: ID }, 60, secrets[0]))).toMatchObject({ job: ID });
    expect(checkReadToken(secrets, signed({ j: ID }, -1, secrets[0]))).toBeUndefined();
  });

  it("is accepted with any of the secrets, and signed with the first", () => {
    const old = signReadToken(secrets.slice(1), { job: ID });
    expect(checkReadToken(secrets, old)).toBeDefined();
    expect(checkReadToken(secrets.slice(0, 1), old)).toBeUndefined();
  });

  it("that was changed anywhere is rejected", () => {
    const token = signReadToken(secrets, { job: ID });
    for (let at = 4; at < token.length; at++) {
      const other = `${token.slice(0, at)}${token[at] === "A" ? "B" : "A"}${token.slice(at + 1)}`;
      // The last character has two unused bits; the signature is compared as text.
      expect(checkReadToken(secrets, other), other).toBeUndefined();
    }
    for (const bad of ["", "swr_", "swr_.", "swr_e30.", `${token}x`, token.toUpperCase()]) {
      expect(checkReadToken(secrets, bad)).toBeUndefined();
    }
  });

  it.each([
    {},
    { job: ID, key: "x" },
    { key: "x" },
    { pipeline: "x" },
    { job: "x" },
    { job: ID, expiresIn: "25h" },
    { job: ID, expiresIn: "0s" },
  ])("is not signed for %j", (options) => {
    expect(() => signReadToken(secrets, options as never)).toThrow(/./);
    expect(() => signReadToken(secrets, options as never)).toThrowError(
      expect.objectContaining({ code: "INVALID_INPUT" }),
    );
  });

  it("needs a secret of at least 32 characters", () => {
    expect(() => checkSecrets("short")).toThrow(/32/);
    expect(() => checkSecrets([secrets[0]!, "short"])).toThrow(/32/);
    expect(checkSecrets(secrets.join(","))).toEqual(secrets);
    expect(() => sw.readToken({ job: ID })).toThrow(/secret/);
  });
});
