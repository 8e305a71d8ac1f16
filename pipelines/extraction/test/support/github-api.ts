// GitHub's API as far as an App needs it for a clone: it believes nobody whose proof is not signed with the App's key, is too old or too long, and then hands out
// a token for the one repository that is asked for.
import { createVerify, generateKeyPairSync } from "node:crypto";
import http from "node:http";
import type { AddressInfo } from "node:net";

export interface GithubApi {
  url: string;
  /** Of the App it knows. */
  app: { id: string; key: string };
  /** What each token was asked for with. */
  asked: { installation: string; body: unknown; proof: string }[];
  /** Answers by the number of the installation, in the place of a token. */
  answers: Record<string, { status: number; headers?: Record<string, string>; body?: unknown }>;
  close(): Promise<void>;
}

const APP_ID = "424242";

export async function githubApi({ token }: { token: string }): Promise<GithubApi> {
  const { publicKey, privateKey } = generateKeyPairSync("rsa", {
    modulusLength: 2048,
    publicKeyEncoding: { type: "spki", format: "pem" },
    // As GitHub hands them out.
    privateKeyEncoding: { type: "pkcs1", format: "pem" },
  });
  const server = http.createServer(async (request, response) => {
    const parts: Buffer[] = [];
    for await (const part of request) parts.push(part as Buffer);
    const answer = (status: number, body: unknown, headers: Record<string, string> = {}) =>
      response.writeHead(status, { "content-type": "application/json", ...headers }).end(JSON.stringify(body));
    const [, installation] = /^\/app\/installations\/(\d+)\/access_tokens$/.exec(request.url ?? "") ?? [];
    if (request.method !== "POST" || !installation) return answer(404, { message: "Not Found" });
    const proof = (request.headers.authorization ?? "").replace(/^Bearer /i, "");
    const wrong = wrongWith(proof, publicKey);
    if (wrong) return answer(401, { message: wrong });
    const body = JSON.parse(Buffer.concat(parts).toString("utf8")) as { repositories?: string[]; permissions?: object };
    self.asked.push({ installation, body, proof });
    const own = self.answers[installation];
    if (own) return answer(own.status, own.body ?? { message: "as told" }, own.headers);
    return answer(201, {
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
    asked: [],
    answers: {},
    close: () =>
      new Promise((resolve) => {
        server.close(() => resolve());
        server.closeAllConnections();
      }),
  };
  return self;
}

/** In GitHub's words, or undefined. */
function wrongWith(proof: string, publicKey: string): string | undefined {
  const [head = "", claims = "", signature = ""] = proof.split(".");
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
