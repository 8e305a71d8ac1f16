// Address, credentials and trusted certificate of a Kubernetes API:
//
//   in a cluster   the pod's service account; its token file is replaced about every hour and read again before each call
//   from outside   the options server, token and ca, or a kubeconfig in JSON; its exec plugins are not supported
import fs from "node:fs";
import http from "node:http";
import https from "node:https";
import { readProviderConfig } from "../../../config.ts";
import { InvalidInput } from "../../../errors.ts";
import { describePath, readCredentialsFile, readJsonCredentials } from "../read-credentials.ts";

export interface KubeAccessOptions {
  /** URL of the API, such as "https://10.0.0.1:6443". Default: the cluster of this process. */
  server?: string | undefined;
  token?: string | (() => string | Promise<string>) | undefined;
  /** The CA certificate of the API, as PEM text or a path. */
  ca?: string | undefined;
  /** A kubeconfig in JSON, or its path. */
  kubeconfig?: string | undefined;
  /** Default: the current context of the kubeconfig. */
  context?: string | undefined;
}

export interface KubeAccess {
  server: string;
  /** Of the kubeconfig's context or of this pod. */
  namespace: string | undefined;
  headers(): Promise<Record<string, string>>;
  /** Undefined if Node's fetch suffices. */
  fetch: typeof fetch | undefined;
}

/** Mount path of a pod's service account. */
const SERVICE_ACCOUNT_DIR = "/var/run/secrets/kubernetes.io/serviceaccount";

export function readKubeAccess(options: KubeAccessOptions, dir = SERVICE_ACCOUNT_DIR): KubeAccess {
  if (options.kubeconfig !== undefined) return fromKubeconfig(options.kubeconfig, options.context);
  if (options.server !== undefined) {
    const { server, token, ca } = options;
    return {
      server: server.replace(/\/$/, ""),
      namespace: undefined,
      headers: async () => bearer(typeof token === "function" ? await token() : token),
      fetch: ca === undefined ? undefined : fetchWithTls({ ca: pem(ca, "ca") }),
    };
  }
  const { kubernetesHost: host, kubernetesPort: port } = readProviderConfig();
  if (!host) {
    throw new InvalidInput("kubernetes() has no server, and this process does not run in a cluster", {
      field: "server",
      remedy: "Set server, token and ca, or a kubeconfig",
    });
  }
  const read = (file: string): string => fs.readFileSync(`${dir}/${file}`, "utf8").trim();
  return {
    server: `https://${host.includes(":") ? `[${host}]` : host}:${port ?? "443"}`,
    namespace: fs.existsSync(`${dir}/namespace`) ? read("namespace") : undefined,
    headers: async () => bearer(read("token")),
    fetch: fetchWithTls({ ca: read("ca.crt") }),
  };
}

interface Kubeconfig {
  "current-context"?: string;
  contexts?: { name: string; context: { cluster: string; user: string; namespace?: string } }[];
  clusters?: { name: string; cluster: Record<string, unknown> }[];
  users?: { name: string; user: Record<string, unknown> }[];
}

function fromKubeconfig(source: string, contextName: string | undefined): KubeAccess {
  const reject = (problem: string, remedy: string): never => {
    throw new InvalidInput(`The kubeconfig ${describePath(source)}${problem}`, { field: "kubeconfig", remedy });
  };
  const config = readJsonCredentials(source, (problem) =>
    reject(
      problem,
      "Create a self-contained one in JSON: `kubectl config view --raw --minify --flatten -o json > kubeconfig.json`",
    ),
  ) as Kubeconfig;
  const name = contextName ?? config["current-context"];
  const { context } =
    config.contexts?.find((entry) => entry.name === name) ??
    reject(`has no context "${name}"`, "Set `context` to one of its contexts");
  const { cluster } =
    config.clusters?.find((entry) => entry.name === context.cluster) ??
    reject(`has no cluster "${context.cluster}"`, "Add the missing entry");
  const { user } =
    config.users?.find((entry) => entry.name === context.user) ??
    reject(`has no user "${context.user}"`, "Add the missing entry");
  const readPem = (entry: Record<string, unknown>, key: string): string | undefined => {
    if (typeof entry[`${key}-data`] === "string")
      return Buffer.from(entry[`${key}-data`] as string, "base64").toString();
    return typeof entry[key] === "string" ? pem(entry[key] as string, "kubeconfig") : undefined;
  };
  const ca = readPem(cluster, "certificate-authority");
  const cert = readPem(user, "client-certificate");
  const key = readPem(user, "client-key");
  const { server } = cluster;
  if (typeof server !== "string")
    return reject(`has no server for cluster "${context.cluster}"`, "Add the missing entry");
  if (cluster["insecure-skip-tls-verify"])
    reject("disables TLS verification", "Add the cluster's certificate-authority-data");
  const { token, tokenFile } = user as { token?: string; tokenFile?: string };
  if (!token && !tokenFile && !(cert && key)) {
    const problem = user.exec
      ? "uses an exec plugin, which is not supported"
      : user["auth-provider"]
        ? "uses an auth-provider, which is not supported"
        : "has no token";
    reject(
      problem,
      "Create a service account for the orchestrator and set its token (`kubectl create token stillwake-orchestrator`), or run it in the cluster",
    );
  }
  return {
    server: server.replace(/\/$/, ""),
    namespace: context.namespace,
    headers: async () => bearer(token ?? (tokenFile && fs.readFileSync(tokenFile, "utf8").trim())),
    fetch: fetchWithTls({ ...(ca && { ca }), ...(cert && key && { cert, key }) }),
  };
}

function bearer(token: string | undefined): Record<string, string> {
  return token ? { authorization: `Bearer ${token}` } : {};
}

function pem(source: string, field: string): string {
  if (source.includes("-----BEGIN")) return source;
  return readCredentialsFile(source, (problem) => {
    throw new InvalidInput(`The ${field} ${describePath(source)}${problem}`, {
      field,
      remedy: "Use PEM text, or the path of a PEM file",
    });
  });
}

/** A subset of fetch with a custom CA or client certificate, which Node's fetch does not support. */
function fetchWithTls(tls: { ca?: string; cert?: string; key?: string }): typeof fetch {
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
          const responseHeaders = Object.entries(response.headers).map(([key, value]): [string, string] => [
            key,
            String(value),
          ]);
          resolve(new Response(isEmpty ? null : Buffer.concat(chunks), { status, headers: responseHeaders }));
        });
      });
      request.end(body as string | undefined);
    });
}
