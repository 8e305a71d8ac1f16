// Where a repository is fetched from. The address is rebuilt from the operator's host and the parts of the repository's name; what the host resolves to is
// judged here, and git is then held to those very answers, so that a name which resolves to something else a moment later gains nothing.
import net from "node:net";
import { addressGuard, BlockedAddress, type Resolve } from "stillwake/worker";
import { tell } from "../user-error.ts";
import { REPOSITORY } from "./repository.ts";

export interface Whereabouts {
  /** "acme/site". */
  repository: string;
  /** Whose host it is, as people write it: "GitHub". */
  name: string;
  /** Its address, as the operator has set it. Only so may it be http. */
  base: string;
  /** Repositories of these owners are fetched from another host. */
  mirrors?: readonly Mirror[];
  /** Networks that are reached although they are nobody's public ones. */
  allowAddresses: readonly string[];
  /** What the names of this system's variables begin with, such as "EXTRACTION" in EXTRACTION_GITHUB_URL and EXTRACTION_ALLOW_ADDRESSES. */
  prefix: string;
}

export interface Mirror {
  owner: string;
  url: string;
}

export interface Remote {
  /** "https://github.com/acme/site.git": no user, no token. */
  url: string;
  /** "https://github.com", whom alone the token is for. */
  origin: string;
  host: string;
  protocol: "https" | "http";
  /** It is not the host itself, and gets no token. */
  mirror?: true;
  /** Nobody on the way can read what is sent: it is https, or the operator has named the network of every address. */
  confidential: boolean;
  /** For git's http.curloptResolve; undefined where the host is an address already. */
  pin: string | undefined;
}

export async function locate(where: Whereabouts, resolve?: Resolve): Promise<Remote> {
  const { repository } = where;
  const mirror = where.mirrors?.find(({ owner }) => repository.startsWith(`${owner}/`));
  const base = hostOf(mirror?.url ?? where.base, where);
  if (!REPOSITORY.test(repository)) {
    throw tell("Repository name is not valid - write it as owner/name", { code: "CLONE_NAME", fatal: true });
  }
  const folder = base.pathname.replace(/\/+$/, "");
  const url = new URL(`${folder}/${repository.replace(/\.git$/, "")}.git`, base);
  const protocol = base.protocol === "http:" ? "http" : "https";
  const port = Number(base.port || (protocol === "http" ? 80 : 443));
  const guard = addressGuard({
    allowHttp: protocol === "http",
    // The operator has named the port along with the host.
    ports: [port],
    allow: where.allowAddresses,
    ...(resolve && { resolve }),
  });
  const host = base.hostname.replace(/^\[(.*)\]$/, "$1");
  let addresses = [host];
  let pin: string | undefined;
  try {
    guard.check(url);
    if (!net.isIP(host)) {
      addresses = await addressesOf(guard.lookup(url), host);
      pin = `${host}:${port}:${addresses.map(bracketed).join(",")}`;
    }
  } catch (error) {
    throw unreachable(error, host, where);
  }
  const confidential = protocol === "https" || areNamed(addresses, where.allowAddresses);
  return { url: url.href, origin: base.origin, host, protocol, pin, confidential, ...(mirror && { mirror: true }) };
}

/** Of the machine itself as well: it is reached only where its address is allowed. */
function areNamed(addresses: readonly string[], ranges: readonly string[]): boolean {
  const named = new net.BlockList();
  for (const range of ranges) {
    // Ports may follow, which the guard has judged.
    const [network = "", prefix] = range.trim().split(/[/ ]/);
    named.addSubnet(network, Number(prefix), familyOf(network));
  }
  return addresses.every((address) => named.check(address, familyOf(address)));
}

function familyOf(address: string): "ipv4" | "ipv6" {
  return net.isIPv6(address) ? "ipv6" : "ipv4";
}

/** What an operator has set may be a server at home and below a path, and nothing more. */
function hostOf(text: string, { name, prefix }: Whereabouts): URL {
  const url = URL.canParse(text) ? new URL(text) : undefined;
  const plain = url && !url.username && !url.password && !url.search && !url.hash;
  if (plain && (url.protocol === "https:" || url.protocol === "http:")) return url;
  const setting = `${prefix}_${name.toUpperCase()}_URL`;
  throw tell(`The address of ${name} is not valid - set ${setting} to its https address, without a user`, {
    code: "CLONE_HOST",
    fatal: true,
  });
}

function addressesOf(lookup: net.LookupFunction, host: string): Promise<string[]> {
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

function unreachable(error: unknown, host: string, { prefix }: Whereabouts): unknown {
  if (error instanceof BlockedAddress) {
    return tell(
      `${host} may not be connected to from here - the operator can allow its range by ${prefix}_ALLOW_ADDRESSES`,
      {
        code: "CLONE_ADDRESS",
        fatal: true,
        cause: error,
      },
    );
  }
  if ((error as { code?: unknown }).code === "DNS_FAILED") {
    return tell(`${host} could not be found - check the worker's network and name servers`, {
      code: "CLONE_DNS",
      cause: error,
    });
  }
  return error;
}
