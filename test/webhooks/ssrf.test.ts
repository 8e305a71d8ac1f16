// Blocked addresses, in every notation and for every DNS result. Each case is tried against a real server on this
// machine, which must not receive a request.
import { execFileSync } from "node:child_process";
import { once } from "node:events";
import fs from "node:fs";
import http from "node:http";
import https from "node:https";
import type net from "node:net";
import path from "node:path";
import type { TLSSocket } from "node:tls";
import { afterAll, describe, expect, it, onTestFinished } from "vitest";
import { createStillwake, pipeline } from "../../src/index.ts";
import { createPoster } from "../../src/webhooks/request.ts";
import { addressGuard, createSender, type GuardOptions, type Resolve } from "../../src/worker/index.ts";
import { temporaryDirectory } from "../support/cleanup.ts";
import { freshDatabase } from "../support/database/database.ts";
import { respondWith, startReceiver } from "../support/fakes/webhook-receiver.ts";
import { recordFigure } from "../support/figures.ts";

const database = await freshDatabase();
const target = await startReceiver(respondWith(200, {}, "the inside"), true);
let blocked = 0;
afterAll(async () => {
  recordFigure("vectors blocked", blocked);
  recordFigure("vectors that reached the server", target.connections());
  await target.close();
});

/** Allows everything except the address. */
const open: GuardOptions = { allowHttp: true, ports: [target.port, 8080] };
const resolveTo =
  (...addresses: string[]): Resolve =>
  async () =>
    addresses.map((address) => ({ address, family: address.includes(":") ? 6 : 4 }));

async function post(url: string, options: GuardOptions = open, ca?: string) {
  const poster = createPoster(addressGuard(options), ca);
  try {
    return await poster.post({ url, headers: {}, body: "{}", timeoutMs: 5000 });
  } finally {
    poster.close();
  }
}

async function isBlocked(url: string, options?: GuardOptions): Promise<void> {
  expect(await post(url, options), url).toEqual({ error: "BLOCKED_ADDRESS" });
  expect(target.connections()).toBe(0);
  blocked += 1;
}

describe("a literal address", () => {
  it.each([
    "127.0.0.1",
    "2130706433",
    "0x7f000001",
    "0177.0.0.1",
    "127.1",
    "①②⑦.⓪.⓪.①",
    "127。0。0。1",
    "0",
    "0.0.0.0",
    "127.255.255.254",
    "[::1]",
    "[::]",
    "[::ffff:127.0.0.1]",
    "[::ffff:7f00:1]",
    "[0:0:0:0:0:ffff:7f00:0001]",
    "[::127.0.0.1]",
    "[64:ff9b::7f00:1]",
    "[64:ff9b::169.254.169.254]",
    "[64:ff9b:1::7f00:1]",
    "[2002:7f00:1::]",
    "[2001:0:7f00:1::]",
  ])("of this machine is blocked: %s", async (host) => {
    await isBlocked(`http://${host}:${target.port}/`);
  });

  it("of this machine is blocked in notations that only a lenient parser accepts", async () => {
    await isBlocked(`http:\\\\127.0.0.1:${target.port}\\`);
    await isBlocked(`http:127.0.0.1:${target.port}/`);
    // The part before the @ is a user, and users are rejected for every host.
    expect(await post(`http://example.com@127.0.0.1:${target.port}/`)).toEqual({ error: "INVALID_URL" });
    expect(target.connections()).toBe(0);
    blocked += 1;
  });

  it.each([
    "10.0.0.1",
    "10.255.255.255",
    "172.16.0.1",
    "172.31.255.255",
    "192.168.1.1",
    "169.254.169.254",
    "169.254.170.2",
    "100.64.0.1",
    "100.100.100.200",
    "100.127.255.255",
    "168.63.129.16",
    "192.0.0.192",
    "192.0.2.1",
    "192.88.99.1",
    "198.18.0.1",
    "198.19.255.255",
    "198.51.100.1",
    "203.0.113.1",
    "224.0.0.1",
    "239.255.255.255",
    "240.0.0.1",
    "255.255.255.255",
    "0.1.2.3",
    "[fe80::1]",
    "[fec0::1]",
    "[fc00::1]",
    "[fd00:ec2::254]",
    "[fdaa:0:1::3]",
    "[ff02::1]",
    "[2001:db8::1]",
    "[2001:20::1]",
    "[3fff::1]",
    "[100::1]",
    "[5f00::1]",
    "[4000::1]",
    "[::ffff:10.0.0.1]",
    "[::ffff:0:10.0.0.1]",
    "[64:ff9b::10.0.0.1]",
    "[2002:a9fe:a9fe::1]",
  ])("of a private or reserved network is blocked: %s", async (host) => {
    await isBlocked(`http://${host}:8080/`);
  });

  it.each([
    "172.15.255.255",
    "172.32.0.1",
    "100.63.255.255",
    "100.128.0.1",
    "11.0.0.1",
    "169.253.0.1",
    "192.0.1.1",
    "223.255.255.255",
    "[2606:4700::1111]",
    "[2001:4860:4860::8888]",
    "[2003::1]",
  ])("of the internet is allowed: %s", (host) => {
    expect(() => addressGuard(open).check(new URL(`http://${host}:8080/`))).not.toThrow();
  });
});

describe("a host name", () => {
  it.each([
    "localhost",
    "localhost.",
    "LOCALHOST",
    "foo.localhost",
    "metadata.google.internal",
    "_api.internal",
    "top1.nearest.of.app.internal",
    "postgres",
    "kubernetes.default.svc",
    "db.default.svc.cluster.local",
    "printer.lan",
    "host.docker.internal",
  ])("that is internal is blocked even if it resolves to the internet: %s", async (host) => {
    await isBlocked(`http://${host}:8080/`, { ...open, resolve: resolveTo("93.184.216.34") });
    // Also with an allow list that does not contain its address.
    await isBlocked(`http://${host}:8080/`, { ...open, allow: ["10.0.0.0/8"], resolve: resolveTo("93.184.216.34") });
  });

  it.each([
    ["to this machine", ["127.0.0.1"]],
    ["to a private address, as 10.0.0.1.nip.io does", ["10.0.0.1"]],
    ["to metadata by a CNAME", ["169.254.169.254"]],
    ["to a private IPv6 address only", ["fd00::1"]],
    ["to IPv4 in IPv6 clothes", ["::ffff:127.0.0.1"]],
    ["to NAT64 of this machine", ["64:ff9b::7f00:1"]],
    ["to both kinds, one of them inside", ["93.184.216.34", "::1"]],
    ["to several, the last inside", ["93.184.216.34", "93.184.216.35", "127.0.0.1"]],
    ["to an address of an interface", ["fe80::1%lo"]],
    ["to something that is no address", ["localhost"]],
  ])("that resolves %s is blocked", async (_, addresses) => {
    await isBlocked(`http://rebind.example:${target.port}/`, { ...open, resolve: resolveTo(...addresses) });
  });

  it("that resolves to this machine only at the second lookup is resolved once, and exactly that address is used", async () => {
    const asked: string[] = [];
    const answers = ["127.0.0.2", "127.0.0.1", "127.0.0.2"];
    const resolve: Resolve = async (host) => {
      asked.push(host);
      // A second lookup would return the wrong address.
      return [{ address: answers[asked.length - 1] ?? "127.0.0.1", family: 4 }];
    };
    // 127.0.0.2 represents the internet.
    const harmless = await harmlessServer();
    const options = { ...open, allow: [`127.0.0.2/32 ${harmless.port}`], resolve };
    const url = `http://rebind.example:${harmless.port}/`;
    expect(await post(url, options)).toMatchObject({ status: 204 });
    expect(asked).toHaveLength(1);
    expect(await post(url, options)).toEqual({ error: "BLOCKED_ADDRESS" });
    expect(await post(url, options)).toMatchObject({ status: 204 });
    expect(asked).toHaveLength(3);
    expect(harmless.addresses).toEqual(["127.0.0.2", "127.0.0.2"]);
    blocked += 1;
  });

  it("that does not exist or has no address fails with DNS_FAILED", async () => {
    const fails = { ...open, resolve: () => Promise.reject(new Error("ENOTFOUND at 10.0.0.53")) };
    expect(await post("http://nobody.example:8080/", fails)).toEqual({ error: "DNS_FAILED" });
    expect(await post("http://nobody.example:8080/", { ...open, resolve: resolveTo() })).toEqual({
      error: "DNS_FAILED",
    });
  });

  it("is checked again when the socket is connected", () => {
    const guard = addressGuard(open);
    const url = new URL("http://fine.example:8080/");
    expect(() => guard.connected(url, "93.184.216.34")).not.toThrow();
    for (const address of ["127.0.0.1", "::ffff:127.0.0.1", "fe80::1%eth0", undefined]) {
      expect(() => guard.connected(url, address)).toThrow(expect.objectContaining({ code: "BLOCKED_ADDRESS" }));
    }
  });
});

describe("the sender also refuses", () => {
  it("plain http, other ports, other schemes, users and passwords", async () => {
    const strict = { resolve: resolveTo("93.184.216.34") };
    expect(await post("http://example.com/", strict)).toEqual({ error: "HTTPS_ONLY" });
    expect(await post("https://example.com:8443/", strict)).toEqual({ error: "BLOCKED_ADDRESS" });
    expect(await post("https://example.com:22/", { ...strict, allowHttp: true })).toEqual({ error: "BLOCKED_ADDRESS" });
    expect(await post("https://93.184.216.34:6379/")).toEqual({ error: "BLOCKED_ADDRESS" });
    expect(await post("https://user:pass@example.com/", strict)).toEqual({ error: "INVALID_URL" });
    expect(await post("ftp://example.com/", strict)).toEqual({ error: "INVALID_URL" });
    expect(await post("file:///etc/passwd", strict)).toEqual({ error: "INVALID_URL" });
    expect(await post("nonsense", strict)).toEqual({ error: "INVALID_URL" });
    const guard = addressGuard();
    for (const url of ["https://example.com/", "https://example.com:443/"]) guard.check(new URL(url));
    addressGuard({ allowHttp: true }).check(new URL("http://example.com/"));
    blocked += 8;
  });

  it("to follow redirects, to metadata or anywhere", async () => {
    const elsewhere = await startReceiver();
    const from = await startReceiver((_, response) =>
      response.writeHead(302, { location: "http://169.254.169.254/latest/meta-data/" }).end(),
    );
    const options = { allowHttp: true, allow: ["127.0.0.0/8 *"] };
    expect(await post(from.url, options)).toEqual({ status: 302, error: "REDIRECT" });
    for (const code of [301, 303, 307, 308]) {
      from.respond = respondWith(code, { location: elsewhere.url });
      expect(await post(from.url, options)).toEqual({ status: code, error: "REDIRECT" });
    }
    expect(elsewhere.received).toEqual([]);
    blocked += 5;
  });

  it("to use a proxy of the environment", async () => {
    const proxy = await startReceiver();
    const receiver = await startReceiver();
    const names = ["HTTP_PROXY", "http_proxy", "HTTPS_PROXY", "ALL_PROXY", "NODE_USE_ENV_PROXY"];
    const before = names.map((name) => process.env[name]);
    onTestFinished(() => {
      for (const [place, name] of names.entries()) {
        if (before[place] === undefined) delete process.env[name];
        else process.env[name] = before[place];
      }
    });
    for (const name of names) process.env[name] = name.startsWith("NODE") ? "1" : proxy.url;
    expect(await post(receiver.url, { allowHttp: true, allow: ["127.0.0.0/8 *"] })).toEqual({ status: 204 });
    expect(proxy.connections()).toBe(0);
    expect(receiver.received).toHaveLength(1);
  });
});

describe("the allow list", () => {
  it("allows ranges with the default ports, with some, or with any", async () => {
    const check = (url: string, ...allow: string[]) => {
      try {
        addressGuard({ allowHttp: true, allow }).check(new URL(url));
        return "allowed";
      } catch (error) {
        return (error as { code: string }).code;
      }
    };
    expect(check("http://10.1.2.3/", "10.1.0.0/16")).toBe("allowed");
    expect(check("http://10.2.2.3/", "10.1.0.0/16")).toBe("BLOCKED_ADDRESS");
    expect(check("http://10.1.2.3:8080/", "10.1.0.0/16")).toBe("BLOCKED_ADDRESS");
    expect(check("http://10.1.2.3:8080/", "10.1.2.3/32 8080,8443")).toBe("allowed");
    expect(check("http://10.1.2.3/", "10.1.2.3/32 8080,8443")).toBe("BLOCKED_ADDRESS");
    expect(check("http://[fd00::5]:99/", "fd00::/8 *")).toBe("allowed");
    expect(check("http://[::ffff:10.1.2.3]/", "10.1.0.0/16")).toBe("allowed");
    expect(check("http://8.8.8.8/", "8.8.8.8/32 8080")).toBe("allowed");
    for (const bad of ["10.0.0.0", "10.0.0.0/33", "ten/8", "10.0.0.0/8 x", "fe80::1%eth0/64", ""]) {
      expect(() => addressGuard({ allow: [bad] }), bad).toThrow(expect.objectContaining({ field: "allow" }));
    }
  });

  it("allows an internal host name for its addresses only", async () => {
    const receiver = await startReceiver();
    const options = { allowHttp: true, allow: ["127.0.0.1/32 *"] };
    const url = `http://n8n.internal:${receiver.port}/`;
    expect(await post(url, { ...options, resolve: resolveTo("127.0.0.1") })).toEqual({ status: 204 });
    await isBlocked(url, { ...options, resolve: resolveTo("127.0.0.1", "10.0.0.1") });
    await isBlocked(url, { ...options, resolve: resolveTo("93.184.216.34") });
  });
});

describe("TLS", () => {
  it("verifies the certificate for the host name although it connects to an address", async () => {
    const { key, cert } = certificate("hooks.example");
    const names: unknown[] = [];
    const server = https.createServer({ key, cert }, (request, response) => {
      names.push([request.headers.host, (request.socket as TLSSocket & { servername?: string }).servername]);
      request.resume();
      response.writeHead(204).end();
    });
    server.on("tlsClientError", () => {});
    server.listen(0, "127.0.0.1");
    await once(server, "listening");
    onTestFinished(() => void server.close());
    const { port } = server.address() as net.AddressInfo;
    const options = { allow: ["127.0.0.1/32 *"], resolve: resolveTo("127.0.0.1") };
    expect(await post(`https://hooks.example:${port}/`, options, cert)).toEqual({ status: 204 });
    expect(names).toEqual([[`hooks.example:${port}`, "hooks.example"]]);
    expect(await post(`https://hooks.example:${port}/`, options)).toEqual({ error: "TLS_FAILED" });
    expect(await post(`https://elsewhere.example:${port}/`, options, cert)).toEqual({ error: "TLS_FAILED" });
    expect(names).toHaveLength(1);
  });
});

describe("a webhook to an internal address", () => {
  it("is recorded as blocked without details, and no request is sent", async () => {
    await using stillwake = createStillwake({ url: database.url });
    const { id } = await stillwake.enqueue(pipeline("probe"), {}, { webhook: `http://127.0.0.1:${target.port}/admin` });
    await stillwake.cancel(id);
    await using sender = createSender({ url: database.url, allowHttp: true, ports: [target.port] });
    await sender.flush();
    const [hook] = await stillwake.webhooks.list({ job: id });
    expect(hook).toMatchObject({ state: "pending", attempts: 1 });
    expect(hook!.deliveries).toEqual([
      expect.objectContaining({ error: "BLOCKED_ADDRESS", status: null, response: null }),
    ]);
    expect(target.connections()).toBe(0);
    blocked += 1;
  });
});

/** Listens on every address of this machine and records the address of each request. */
async function harmlessServer(): Promise<{ port: number; addresses: string[] }> {
  const addresses: string[] = [];
  const server = http.createServer((request, response) => {
    addresses.push(request.socket.localAddress ?? "");
    request.resume();
    response.writeHead(204).end();
  });
  server.listen(0, "0.0.0.0");
  await once(server, "listening");
  onTestFinished(() => void server.close());
  return { port: (server.address() as net.AddressInfo).port, addresses };
}

function certificate(name: string): { key: string; cert: string } {
  const dir = temporaryDirectory("tls");
  const [key, cert] = [path.join(dir, "key.pem"), path.join(dir, "cert.pem")];
  const args = ["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2"];
  const named = ["-subj", `/CN=${name}`, "-addext", `subjectAltName=DNS:${name}`];
  execFileSync("openssl", [...args, ...named, "-keyout", key, "-out", cert], { stdio: "pipe" });
  return { key: fs.readFileSync(key, "utf8"), cert: fs.readFileSync(cert, "utf8") };
}
