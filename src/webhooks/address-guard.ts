// Protects against server-side request forgery: decides which addresses may be connected to for an untrusted URL. It
// checks every address that the host name resolves to, the connection uses exactly those addresses, and the address of
// the connected socket is checked again, so that DNS rebinding has no effect. Used for webhooks and for git remotes.
import dns from "node:dns";
import net from "node:net";
import { InvalidInput, StillwakeError } from "../errors.ts";

export interface GuardOptions {
  /** Also allow plain http, and port 80. */
  allowHttp?: boolean;
  /** Allowed ports in addition to 443 (and 80). */
  ports?: readonly number[];
  /** Allowed private ranges: "10.1.0.0/16", with ports "10.1.2.3/32 8080,8443", or with any port "fd00::/8 *". */
  allow?: readonly string[];
  /** Resolves a host name to all its addresses. Default: DNS as configured on this system. */
  resolve?: Resolve;
}

export type Resolve = (host: string) => Promise<readonly { address: string; family: number }[]>;

/** Does not say which rule matched, so that it cannot be used to probe the network. */
export class BlockedAddress extends StillwakeError {
  constructor() {
    super("BLOCKED_ADDRESS", "Connections to this address are not allowed", {
      remedy: "The operator can allow its range with the option allow",
    });
  }
}

export interface AddressGuard {
  /** Checks scheme, port, credentials and a literal address, without DNS. Throws. */
  check(url: URL): void;
  /** A lookup function for a request to this URL: resolves all addresses and fails unless every one is allowed. */
  lookup(url: URL): net.LookupFunction;
  /** Checks the address that a socket is connected to. Throws. */
  connected(url: URL, address: string | undefined): void;
}

export function addressGuard(options: GuardOptions = {}): AddressGuard {
  const { allowHttp = false, ports = [], resolve = resolveAll } = options;
  const allowed = (options.allow ?? []).map(parseAllowed);
  const defaultPorts = new Set([443, ...(allowHttp ? [80] : []), ...ports]);
  const portOf = (url: URL) => Number(url.port || (url.protocol === "http:" ? 80 : 443));

  const checkAddress = (url: URL, address: string) => {
    const ip = parseAddress(address);
    const port = portOf(url);
    if (!ip) throw new BlockedAddress();
    const ranges = allowed.filter((range) => within(ip, range));
    if (ranges.some((range) => range.ports === "any" || (range.ports ?? defaultPorts).has(port))) return;
    // An internal host name is accepted only for an address in an allowed range.
    if (isInternal(ip) || isInternalName(hostOf(url)) || !defaultPorts.has(port)) throw new BlockedAddress();
  };

  return {
    check(url) {
      if (url.protocol !== "https:" && url.protocol !== "http:")
        throw new StillwakeError("INVALID_URL", "The URL must use https");
      if (url.protocol === "http:" && !allowHttp) throw new StillwakeError("HTTPS_ONLY", "Plain http is not allowed");
      if (url.username || url.password)
        throw new StillwakeError("INVALID_URL", "The URL must not contain a user or password");
      const host = hostOf(url);
      if (net.isIP(host)) checkAddress(url, host);
      else if (!defaultPorts.has(portOf(url)) && !allowed.some((range) => range.ports)) throw new BlockedAddress();
      else if (isInternalName(host) && allowed.length === 0) throw new BlockedAddress();
    },
    lookup: (url) => (host, options, callback) => {
      void resolve(host).then(
        (answers) => {
          try {
            if (answers.length === 0) throw new StillwakeError("DNS_FAILED", "The host name has no address");
            for (const { address } of answers) checkAddress(url, address);
          } catch (error) {
            callback(error as NodeJS.ErrnoException, "");
            return;
          }
          if (options.all) callback(null, [...answers] as never);
          else callback(null, answers[0]!.address, answers[0]!.family);
        },
        () =>
          callback(
            new StillwakeError("DNS_FAILED", "The host name could not be resolved") as NodeJS.ErrnoException,
            "",
          ),
      );
    },
    connected(url, address) {
      if (!address) throw new BlockedAddress();
      checkAddress(url, address);
    },
  };
}

/** Without the brackets of IPv6 and a trailing dot. */
function hostOf(url: URL): string {
  return url.hostname.replace(/^\[(.*)\]$/, "$1").replace(/\.$/, "");
}

/** Names of this machine, the cluster or the provider; also names without a dot, which DNS search lists complete. */
function isInternalName(host: string): boolean {
  if (net.isIP(host)) return false;
  return (
    !host.includes(".") ||
    /(^|\.)(localhost|local|internal|intranet|lan|home|corp|private|localdomain|home\.arpa|svc)$/.test(host)
  );
}

interface Address {
  bits: 32 | 128;
  value: bigint;
}

interface Range extends Address {
  prefix: number;
  /** Undefined: the default ports. */
  ports: ReadonlySet<number> | "any" | undefined;
}

function range(text: string): Range {
  const [address, prefix] = text.split("/");
  return { ...parseAddress(address!)!, prefix: Number(prefix), ports: undefined };
}

const internal4 = [
  "0.0.0.0/8", // this network
  "10.0.0.0/8",
  "100.64.0.0/10", // carrier-grade NAT, and the metadata service of one provider
  "127.0.0.0/8",
  "168.63.129.16/32", // Azure's own service, on an address that looks public
  "169.254.0.0/16", // link-local, metadata
  "172.16.0.0/12",
  "192.0.0.0/24",
  "192.0.2.0/24", // documentation
  "192.88.99.0/24", // 6to4 relays
  "192.168.0.0/16",
  "198.18.0.0/15", // benchmarks
  "198.51.100.0/24",
  "203.0.113.0/24",
  "224.0.0.0/4", // multicast
  "240.0.0.0/4", // reserved, broadcast
].map(range);

/** Only global unicast is allowed for IPv6: NAT64, unique local, link-local, multicast and the rest are outside this range. */
const global6 = range("2000::/3");
const internal6 = [
  "2001::/23", // Teredo and other protocols
  "2001:db8::/32", // documentation
  "2002::/16", // 6to4: contains an IPv4 address
  "3fff::/20", // documentation
].map(range);

function isInternal(ip: Address): boolean {
  if (ip.bits === 32) return internal4.some((range) => within(ip, range));
  return !within(ip, global6) || internal6.some((range) => within(ip, range));
}

function within(ip: Address, { bits, value, prefix }: Range): boolean {
  const shift = BigInt(bits - prefix);
  return ip.bits === bits && ip.value >> shift === value >> shift;
}

/** Undefined for invalid addresses and those with a zone (fe80::1%eth0). An IPv4-mapped address (::ffff:127.0.0.1) is IPv4. */
function parseAddress(text: string): Address | undefined {
  if (net.isIPv4(text))
    return { bits: 32, value: text.split(".").reduce((sum, part) => sum * 256n + BigInt(part), 0n) };
  if (!net.isIPv6(text) || text.includes("%")) return undefined;
  const plain = text.replace(/[\d.]+$/, (tail) => {
    if (!tail.includes(".")) return tail;
    const [a, b, c, d] = tail.split(".").map(Number) as [number, number, number, number];
    return `${((a << 8) | b).toString(16)}:${((c << 8) | d).toString(16)}`;
  });
  const [front, back] = plain.split("::").map((half) => half.split(":").filter(Boolean));
  const zeros = back ? Array<string>(8 - front!.length - back.length).fill("0") : [];
  const groups = [...front!, ...zeros, ...(back ?? [])];
  const value = groups.reduce((sum, group) => (sum << 16n) + BigInt(`0x${group}`), 0n);
  return value >> 32n === 0xffffn ? { bits: 32, value: value & 0xffffffffn } : { bits: 128, value };
}

function parseAllowed(text: string): Range {
  const [, address = "", prefix = "", ports] =
    /^([\d.a-fA-F:]+)\/(\d{1,3})(?: +(\*|\d+(?:,\d+)*))?$/.exec(typeof text === "string" ? text.trim() : "") ?? [];
  const ip = parseAddress(address);
  if (!ip || Number(prefix) > ip.bits) {
    throw new InvalidInput(`${JSON.stringify(text)} is not a valid address range`, {
      field: "allow",
      remedy: 'Write it as "10.1.0.0/16", or "10.1.2.3/32 8080,8443" or "fd00::/8 *" with its ports',
    });
  }
  const list = ports === undefined || ports === "*" ? undefined : new Set(ports.split(",").map(Number));
  return { ...ip, prefix: Number(prefix), ports: ports === "*" ? "any" : list };
}

/**
 * IPv4 and IPv6. Does not use dns.lookup, whose few threads slow names would block, except for names that the name
 * servers do not know, which may be in the hosts file.
 */
async function resolveAll(host: string): Promise<{ address: string; family: number }[]> {
  const resolver = new dns.promises.Resolver({ timeout: 2000, tries: 2 });
  const answers = await Promise.allSettled([resolver.resolve4(host), resolver.resolve6(host)]);
  const found = answers.flatMap((answer, index) =>
    answer.status === "fulfilled" ? answer.value.map((address) => ({ address, family: index === 0 ? 4 : 6 })) : [],
  );
  const timedOut = answers.find((answer) => answer.status === "rejected" && answer.reason?.code === "ETIMEOUT");
  if (timedOut && found.length === 0) throw (timedOut as PromiseRejectedResult).reason;
  return found.length > 0 ? found : dns.promises.lookup(host, { all: true });
}
