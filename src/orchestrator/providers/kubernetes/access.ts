// How the Kubernetes provider gets in: the address of the API, who we are, and whose certificate we trust.
//
//   in a cluster   the pod's own service account; its token is a file that is replaced every hour or so, and is read again before each call
//   from outside   server, token and ca as given, or a kubeconfig in JSON; programs that a kubeconfig would have us run for a token are not run
import fs from "node:fs";
import http from "node:http";
import https from "node:https";
import { readProviderConfig } from "../../../config.ts";
import { InvalidInput } from "../../../errors.ts";
import { givenFile, givenJson, placed } from "../read-credentials.ts";

export interface KubeAccessOptions {
  /** Where the API is, such as "https://10.0.0.1:6443"; without one the cluster that this process runs in. */
  server?: string | undefined;
  token?: string | (() => string | Promise<string>) | undefined;
  /** The certificate that the API's is signed with, as PEM text or a path. */
  ca?: string | undefined;
  /** A kubeconfig in JSON, or its path, with one of its contexts; default: its current one. */
  kubeconfig?: string | undefined;
  context?: string | undefined;
}

export interface KubeAccess {
  server: string;
  /** Of the kubeconfig's context or of the pod that this is. */
  namespace: string | undefined;
  headers(): Promise<Record<string, string>>;
  /** Undefined where Node's own will do. */
  fetch: typeof fetch | undefined;
}

/** Where a pod finds its service account. */
const POD = "/var/run/secrets/kubernetes.io/serviceaccount";

export function kubeAccess(options: KubeAccessOptions, pod = POD): KubeAccess {
  if (options.kubeconfig !== undefined) return fromKubeconfig(options.kubeconfig, options.context);
  if (options.server !== undefined) {
    const { server, token, ca } = options;
    return {
      server: server.replace(/\/$/, ""),
      namespace: undefined,
      headers: async () => bearer(typeof token === "function" ? await token() : token),
      fetch: ca === undefined ? undefined : trusting({ ca: pem(ca, "ca") }),
    };
  }
  const { kubernetesHost: host, kubernetesPort: port } = readProviderConfig();
  if (!host) {
    throw new InvalidInput("kubernetes() is told no server, and this process does not run in a cluster", {
      field: "server",
      remedy: "Give server, token and ca, or a kubeconfig",
    });
  }
  const read = (file: string): string => fs.readFileSync(`${pod}/${file}`, "utf8").trim();
  return {
    server: `https://${host.includes(":") ? `[${host}]` : host}:${port ?? "443"}`,
    namespace: present(`${pod}/namespace`) ? read("namespace") : undefined,
    headers: async () => bearer(read("token")),
    fetch: trusting({ ca: read("ca.crt") }),
  };
}

interface Kubeconfig {
  "current-context"?: string;
  contexts?: { name: string; context: { cluster: string; user: string; namespace?: string } }[];
  clusters?: { name: string; cluster: Record<string, unknown> }[];
  users?: { name: string; user: Record<string, unknown> }[];
}

function fromKubeconfig(given: string, wanted: string | undefined): KubeAccess {
  const refuse = (what: string, remedy: string): never => {
    throw new InvalidInput(`The kubeconfig ${placed(given)}${what}`, { field: "kubeconfig", remedy });
  };
  const config = givenJson(given, (what) =>
    refuse(
      what,
      "Give the path of one in JSON, with all that it points to: `kubectl config view --raw --minify --flatten -o json > kubeconfig.json`",
    ),
  ) as Kubeconfig;
  const name = wanted ?? config["current-context"];
  const { context } =
    config.contexts?.find((one) => one.name === name) ??
    refuse(`has no context "${name}"`, "Give one of its contexts as `context`");
  const { cluster } =
    config.clusters?.find((one) => one.name === context.cluster) ??
    refuse(`has no cluster "${context.cluster}"`, "Make it whole");
  const { user } =
    config.users?.find((one) => one.name === context.user) ?? refuse(`has no user "${context.user}"`, "Make it whole");
  const text = (place: Record<string, unknown>, key: string): string | undefined => {
    if (typeof place[`${key}-data`] === "string")
      return Buffer.from(place[`${key}-data`] as string, "base64").toString();
    return typeof place[key] === "string" ? pem(place[key] as string, "kubeconfig") : undefined;
  };
  const ca = text(cluster, "certificate-authority");
  const cert = text(user, "client-certificate");
  const key = text(user, "client-key");
  const { server } = cluster;
  if (typeof server !== "string") return refuse(`has no server for cluster "${context.cluster}"`, "Make it whole");
  if (cluster["insecure-skip-tls-verify"])
    refuse("asks for TLS without checking", "Put the cluster's certificate-authority-data into it");
  const { token, tokenFile } = user as { token?: string; tokenFile?: string };
  if (!token && !tokenFile && !(cert && key)) {
    const kind = user.exec
      ? "runs a program for a token"
      : user["auth-provider"]
        ? "uses an auth-provider"
        : "has no token";
    refuse(
      `${kind}, which is not supported`,
      "Make a service account for the orchestrator and give its token: `kubectl create token stillwake-orchestrator`, or run it in the cluster",
    );
  }
  return {
    server: server.replace(/\/$/, ""),
    namespace: context.namespace,
    headers: async () => bearer(token ?? (tokenFile && fs.readFileSync(tokenFile, "utf8").trim())),
    fetch: trusting({ ...(ca && { ca }), ...(cert && key && { cert, key }) }),
  };
}

function bearer(token: string | undefined): Record<string, string> {
  return token ? { authorization: `Bearer ${token}` } : {};
}

function pem(given: string, field: string): string {
  if (given.includes("-----BEGIN")) return given;
  return givenFile(given, (what) => {
    throw new InvalidInput(`The ${field} ${placed(given)}${what}`, {
      field,
      remedy: "Give PEM text, or the path of a file with it",
    });
  });
}

function present(path: string): boolean {
  return fs.existsSync(path);
}

/** As fetch, as far as the provider needs it, for a server whose certificate is signed by somebody that only we know: Node's fetch cannot be told. */
function trusting(tls: { ca?: string; cert?: string; key?: string }): typeof fetch {
  const agent = new https.Agent({ ...tls, keepAlive: false });
  return (input, init = {}) =>
    new Promise((resolve, reject) => {
      const url = new URL(String(input));
      const { method = "GET", headers, body, signal } = init;
      const fail = (error: Error): void =>
        reject(signal?.aborted ? signal.reason : new TypeError("fetch failed", { cause: error }));
      const options = { method, headers: headers as Record<string, string>, ...(signal && { signal }) };
      const request =
        url.protocol === "https:" ? https.request(url, { ...options, agent }) : http.request(url, options);
      request.on("error", fail);
      request.on("response", (response) => {
        const chunks: Buffer[] = [];
        response.on("data", (chunk: Buffer) => chunks.push(chunk));
        response.on("error", fail);
        response.on("end", () => {
          const status = response.statusCode ?? 500;
          if (status >= 300 && status < 400) return fail(new Error(`unexpected redirect, ${status}`));
          const isEmpty = status === 204 || status === 304;
          const given = Object.entries(response.headers).map(([key, value]): [string, string] => [key, String(value)]);
          resolve(new Response(isEmpty ? null : Buffer.concat(chunks), { status, headers: given }));
        });
      });
      request.end(body as string | undefined);
    });
}
