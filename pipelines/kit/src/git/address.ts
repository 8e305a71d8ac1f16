// Resolves where a repository is fetched from. The URL is built from the operator's host and the checked repository name.
// The host is resolved and checked here, and git is pinned to these addresses, so that a later DNS answer has no effect.
import net from "node:net";
import { addressGuard, BlockedAddress, type Resolve } from "stillwake/worker";
import { userError } from "../failures.ts";
import { REPOSITORY } from "./repository.ts";

export interface RemoteOptions {
  /** "acme/site". */
  repository: string;
  /** Display name of the host: "GitHub". */
  name: string;
  /** The host's URL as the operator has set it. It may be http. */
  base: string;
  /** Repositories of these owners are fetched from another host. */
  mirrors?: readonly Mirror[];
  /** Non-public networks that may be reached. */
  allowAddresses: readonly string[];
  /** Prefix of the system's environment variables, such as "EXTRACTION". */
  prefix: string;
}

export interface Mirror {
  owner: string;
  url: string;
}

export interface Remote {
  /** "https://github.com/acme/site.git": no user, no token. */
  url: string;
  /** "https://github.com": the token is sent to this origin only. */
  origin: string;
  host: string;
  protocol: "https" | "http";
  /** A mirror gets no token. */
  mirror?: true;
  /** A token may be sent: https, or every address is in a network that the operator has allowed. */
  confidential: boolean;
  /** For git's http.curloptResolve; undefined if the host is an IP address. */
  pin: string | undefined;
}

export async function resolveRemote(options: RemoteOptions, resolve?: Resolve): Promise<Remote> {
  const { repository } = options;
  const mirror = options.mirrors?.find(({ owner }) => repository.startsWith(`${owner}/`));
  const base = parseHost(mirror?.url ?? options.base, options);
  if (!REPOSITORY.test(repository)) {
    throw userError("Repository name is not valid - write it as owner/name", { code: "CLONE_NAME", fatal: true });
  }
  const folder = base.pathname.replace(/\/+$/, "");
  const url = new URL(`${folder}/${repository.replace(/\.git$/, "")}.git`, base);
  const protocol = base.protocol === "http:" ? "http" : "https";
  const port = Number(base.port || (protocol === "http" ? 80 : 443));
  const guard = addressGuard({
    allowHttp: protocol === "http",
    // The port is part of the operator's setting.
    ports: [port],
    allow: options.allowAddresses,
    ...(resolve && { resolve }),
  });
  const host = base.hostname.replace(/^\[(.*)\]$/, "$1");
  let addresses = [host];
  let pin: string | undefined;
  try {
    guard.check(url);
    if (!net.isIP(host)) {
      addresses = await lookUpAddresses(guard.lookup(url), host);
      pin = `${host}:${port}:${addresses.map(bracketed).join(",")}`;
    }
  } catch (error) {
    throw explainAddressError(error, host, options);
  }
  const confidential = protocol === "https" || areAllowed(addresses, options.allowAddresses);
  return { url: url.href, origin: base.origin, host, protocol, pin, confidential, ...(mirror && { mirror: true }) };
}

/** Applies to loopback addresses too. */
function areAllowed(addresses: readonly string[], ranges: readonly string[]): boolean {
  const allowed = new net.BlockList();
  for (const range of ranges) {
    // Ports may follow; the guard has checked them.
    const [network = "", prefix] = range.trim().split(/[/ ]/);
    allowed.addSubnet(network, Number(prefix), familyOf(network));
  }
  return addresses.every((address) => allowed.check(address, familyOf(address)));
}

function familyOf(address: string): "ipv4" | "ipv6" {
  return net.isIPv6(address) ? "ipv6" : "ipv4";
}

/** The operator's URL may have a path, but no user, query or fragment. */
function parseHost(text: string, { name, prefix }: RemoteOptions): URL {
  const url = URL.canParse(text) ? new URL(text) : undefined;
  const plain = url && !url.username && !url.password && !url.search && !url.hash;
  if (plain && (url.protocol === "https:" || url.protocol === "http:")) return url;
  const setting = `${prefix}_${name.toUpperCase()}_URL`;
  throw userError(`The URL of ${name} is not valid - set ${setting} to its https URL, without a user`, {
    code: "CLONE_HOST",
    fatal: true,
  });
}

function lookUpAddresses(lookup: net.LookupFunction, host: string): Promise<string[]> {
  return new Promise((resolve, reject) => {
    lookup(host, { all: true }, (error, found) => {
      if (error) reject(error);
      else resolve((found as unknown as { address: string }[]).map(({ address }) => address));
    });
  });
}

function bracketed(address: string): string {
  return net.isIPv6(address) ? `[${address}]` : address;
}

function explainAddressError(error: unknown, host: string, { prefix }: RemoteOptions): unknown {
  if (error instanceof BlockedAddress) {
    return userError(
      `Connecting to ${host} is not allowed - the operator can allow its network with ${prefix}_ALLOW_ADDRESSES`,
      {
        code: "CLONE_ADDRESS",
        fatal: true,
        cause: error,
      },
    );
  }
  if ((error as { code?: unknown }).code === "DNS_FAILED") {
    return userError(`${host} could not be found - check the worker's network and name servers`, {
      code: "CLONE_DNS",
      cause: error,
    });
  }
  return error;
}
