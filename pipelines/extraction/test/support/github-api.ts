// A fake of GitHub's API for App installation tokens: it verifies the JWT of the App and returns a token for the requested repository.
import { createVerify, generateKeyPairSync } from "node:crypto";
import http from "node:http";
import type { AddressInfo } from "node:net";

export interface GithubApi {
  url: string;
  /** Id and private key of the App. */
  app: { id: string; key: string };
  requests: { installation: string; body: unknown; jwt: string }[];
  /** Responses by installation, instead of a token. */
  responses: Record<string, { status: number; headers?: Record<string, string>; body?: unknown }>;
  close(): Promise<void>;
}

const APP_ID = "424242";

export async function githubApi({ token }: { token: string }): Promise<GithubApi> {
  const { publicKey, privateKey } = generateKeyPairSync("rsa", {
    modulusLength: 2048,
    publicKeyEncoding: { type: "spki", format: "pem" },
    // GitHub's key format.
    privateKeyEncoding: { type: "pkcs1", format: "pem" },
  });
  const server = http.createServer(async (request, response) => {
    const parts: Buffer[] = [];
    for await (const part of request) parts.push(part as Buffer);
    const respond = (status: number, body: unknown, headers: Record<string, string> = {}) =>
      response.writeHead(status, { "content-type": "application/json", ...headers }).end(JSON.stringify(body));
    const [, installation] = /^\/app\/installations\/(\d+)\/access_tokens$/.exec(request.url ?? "") ?? [];
    if (request.method !== "POST" || !installation) return respond(404, { message: "Not Found" });
    const jwt = (request.headers.authorization ?? "").replace(/^Bearer /i, "");
    const problem = checkJwt(jwt, publicKey);
    if (problem) return respond(401, { message: problem });
    const body = JSON.parse(Buffer.concat(parts).toString("utf8")) as { repositories?: string[]; permissions?: object };
    self.requests.push({ installation, body, jwt });
    const override = self.responses[installation];
    if (override) return respond(override.status, override.body ?? { message: "override" }, override.headers);
    return respond(201, {
      token,
      expires_at: new Date(Date.now() + 3_600_000).toISOString(),
      permissions: body.permissions,
      repository_selection: "selected",
      repositories: body.repositories?.map((name) => ({ name })),
    });
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  const self: GithubApi = {
    url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`,
    app: { id: APP_ID, key: privateKey },
    requests: [],
    responses: {},
    close: () =>
      new Promise((resolve) => {
        server.close(() => resolve());
        server.closeAllConnections();
      }),
  };
  return self;
}

/** GitHub's error message, or undefined. */
function checkJwt(jwt: string, publicKey: string): string | undefined {
  const [head = "", claims = "", signature = ""] = jwt.split(".");
  const read = (part: string) => JSON.parse(Buffer.from(part, "base64url").toString("utf8")) as Record<string, unknown>;
  try {
    const { alg } = read(head);
    const { iss, iat, exp } = read(claims) as { iss: unknown; iat: number; exp: number };
    const now = Date.now() / 1000;
    const verified = createVerify("RSA-SHA256")
      .update(`${head}.${claims}`)
      .verify(publicKey, Buffer.from(signature, "base64url"));
    if (alg !== "RS256" || !verified) return "A JSON web token could not be decoded";
    if (String(iss) !== APP_ID) return "Integration not found";
    if (!(exp > now && exp <= now + 600)) return "'Expiration time' claim ('exp') is too far in the future";
    if (!(iat <= now))
      return "'Issued at' claim ('iat') must be an Integer representing the time that the assertion was issued";
    return undefined;
  } catch {
    return "A JSON web token could not be decoded";
  }
}
