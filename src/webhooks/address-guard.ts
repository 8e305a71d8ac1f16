// Where a program may connect on behalf of somebody else. What counts is the address that is connected to, not the text it was written as: every
// answer of the name is judged, the connection goes to those very addresses, and what the socket ends at is judged once more. A name that resolves
// to something harmless first and to 127.0.0.1 afterwards gains nothing.
//
// Used for webhooks; anything that fetches a URL of a stranger's is to go through it. Knows no database and no webhook.
import dns from "node:dns";
import net from "node:net";
import { InvalidInput, StillwakeError } from "../errors.ts";

export interface GuardOptions {
  /** Plain http too, and port 80 with it. */
  allowHttp?: boolean;
  /** Ports beside 443 (and 80). */
  ports?: readonly number[];
  /** Addresses that may be connected to although they are private: "10.1.0.0/16", "10.1.2.3/32 8080,8443", "fd00::/8 *" for any port. */
  allow?: readonly string[];
  /** How names become addresses. Default: the resolver of the system's configuration, all answers. */
  resolve?: Resolve;
}

export type Resolve = (host: string) => Promise<readonly { address: string; family: number }[]>;

/** Says that it was blocked, and not by what: who probes the network from here learns nothing. */
export class BlockedAddress extends StillwakeError {
  constructor() {
    super("BLOCKED_ADDRESS", "This address may not be connected to from here", {
      remedy: "The operator can allow it by its range",
    });
  }
}

export interface AddressGuard {
  /** Judges what can be judged without asking for the name: scheme, port, user, address. Throws. */
  check(url: URL): void;
  /** For the request of this URL: asks for all addresses of its name and answers them only if every one may be connected to. */
  lookup(url: URL): net.LookupFunction;
  /** Judges what a socket is connected to. Throws. */
  connected(url: URL, address: string | undefined): void;
}

export function addressGuard(options: GuardOptions = {}): AddressGuard {
  const { allowHttp = false, ports = [], resolve = resolveAll } = options;
  const allowed = (options.allow ?? []).map(readRange);
  const usual = new Set([443, ...(allowHttp ? [80] : []), ...ports]);
  const portOf = (url: URL) => Number(url.port || (url.protocol === "http:" ? 80 : 443));

  const judge = (url: URL, address: string) => {
    const ip = readAddress(address);
    const port = portOf(url);
    if (!ip) throw new BlockedAddress();
    const ranges = allowed.filter((range) => within(ip, range));
    if (ranges.some((range) => range.ports === "any" || (range.ports ?? usual).has(port))) return;
    // A name of the inside is only good for an address that was allowed by its range.
    if (isInside(ip) || isInsideName(hostOf(url)) || !usual.has(port)) throw new BlockedAddress();
  };

  return {
    check(url) {
      if (url.protocol !== "https:" && url.protocol !== "http:") throw refused("INVALID_URL", "It is not https");
      if (url.protocol === "http:" && !allowHttp) throw refused("HTTPS_ONLY", "Plain http is not allowed");
      if (url.username || url.password) throw refused("INVALID_URL", "It has a user or password in it");
      const host = hostOf(url);
      if (net.isIP(host)) judge(url, host);
      else if (!usual.has(portOf(url)) && !allowed.some((range) => range.ports)) throw new BlockedAddress();
      else if (isInsideName(host) && allowed.length === 0) throw new BlockedAddress();
    },
    lookup: (url) => (host, options, callback) => {
      void resolve(host).then(
        (answers) => {
          try {
            if (answers.length === 0) throw refused("DNS_FAILED", "The name has no address");
            for (const { address } of answers) judge(url, address);
          } catch (error) {
            callback(error as NodeJS.ErrnoException, "");
            return;
          }
          if (options.all) callback(null, [...answers] as never);
          else callback(null, answers[0]!.address, answers[0]!.family);
        },
        () => callback(refused("DNS_FAILED", "The name could not be resolved") as NodeJS.ErrnoException, ""),
      );
    },
    connected(url, address) {
      if (!address) throw new BlockedAddress();
      judge(url, address);
    },
  };
}

function refused(code: string, why: string): StillwakeError {
  return new StillwakeError(code, why);
}

/** Without the brackets of IPv6 and the dot at the end. */
function hostOf(url: URL): string {
  return url.hostname.replace(/^\[(.*)\]$/, "$1").replace(/\.$/, "");
}

/** Names that mean the machine, the cluster or the provider: also those without a dot, which search lists complete. */
function isInsideName(host: string): boolean {
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
  /** Undefined: the usual ones. */
  ports: ReadonlySet<number> | "any" | undefined;
}

function range(text: string): Range {
  const [address, prefix] = text.split("/");
  return { ...readAddress(address!)!, prefix: Number(prefix), ports: undefined };
}

const inside4 = [
  "0.0.0.0/8", // this network
  "10.0.0.0/8",
  "100.64.0.0/10", // carrier-grade NAT, where one provider has its metadata
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

/** Of IPv6 only what is handed out for the internet may be connected to at all: NAT64, unique local, link-local, multicast and the rest lie outside. */
const internet6 = range("2000::/3");
const inside6 = [
  "2001::/23", // Teredo and other protocols
  "2001:db8::/32", // documentation
  "2002::/16", // 6to4: an IPv4 address within
  "3fff::/20", // documentation
].map(range);

function isInside(ip: Address): boolean {
  if (ip.bits === 32) return inside4.some((one) => within(ip, one));
  return !within(ip, internet6) || inside6.some((one) => within(ip, one));
}

function within(ip: Address, { bits, value, prefix }: Range): boolean {
  const shift = BigInt(bits - prefix);
  return ip.bits === bits && ip.value >> shift === value >> shift;
}

/** Undefined for what is no address, or one of an interface (fe80::1%eth0). IPv4 in IPv6 clothes (::ffff:127.0.0.1) is IPv4. */
function readAddress(text: string): Address | undefined {
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

function readRange(text: string): Range {
  const [, address = "", prefix = "", ports] =
    /^([\d.a-fA-F:]+)\/(\d{1,3})(?: +(\*|\d+(?:,\d+)*))?$/.exec(typeof text === "string" ? text.trim() : "") ?? [];
  const ip = readAddress(address);
  if (!ip || Number(prefix) > ip.bits) {
    throw new InvalidInput(`${JSON.stringify(text)} is not a range of addresses`, {
      field: "allow",
      remedy: 'Write it as "10.1.0.0/16", or "10.1.2.3/32 8080,8443" or "fd00::/8 *" with its ports',
    });
  }
  const list = ports === undefined || ports === "*" ? undefined : new Set(ports.split(",").map(Number));
  return { ...ip, prefix: Number(prefix), ports: ports === "*" ? "any" : list };
}

/**
 * Both kinds of addresses, without the few threads that dns.lookup has: names that are slow to resolve do not hold up others. What the name servers do
 * not know may stand in the system's own table.
 */
async function resolveAll(host: string): Promise<{ address: string; family: number }[]> {
  const resolver = new dns.promises.Resolver({ timeout: 2000, tries: 2 });
  const answers = await Promise.allSettled([resolver.resolve4(host), resolver.resolve6(host)]);
  const found = answers.flatMap((answer, index) =>
    answer.status === "fulfilled" ? answer.value.map((address) => ({ address, family: index === 0 ? 4 : 6 })) : [],
  );
  const silent = answers.find((answer) => answer.status === "rejected" && answer.reason?.code === "ETIMEOUT");
  if (silent && found.length === 0) throw (silent as PromiseRejectedResult).reason;
  return found.length > 0 ? found : dns.promises.lookup(host, { all: true });
}
