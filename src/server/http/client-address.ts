// The address of a client behind proxies, from the header X-Forwarded-For.
import net from "node:net";

/**
 * Each proxy appends the address of its caller, so with n proxies the client is the nth address from the right, where
 * the connection itself is the 0th. What a client sends in the header is further left and is ignored. With fewer
 * addresses, the leftmost.
 */
export function forwardedAddress(request: Request, remote: string | null, proxies: number): string | null {
  if (proxies === 0) return remote;
  const forwarded = (request.headers.get("x-forwarded-for") ?? "").split(",").map(toAddress).reverse();
  const chain = [remote, ...forwarded.slice(0, proxies)];
  // An entry that is no address ends the chain: the proxy that was to write it did not.
  const end = chain.findIndex((address, index) => index > 0 && address === null);
  return chain.at(end === -1 ? -1 : end - 1) ?? null;
}

/** Some proxies append the port. */
function toAddress(entry: string): string | null {
  const text = entry.trim();
  const address = /^\[([^\]]+)\](:\d+)?$/.exec(text)?.[1] ?? /^([\d.]+):\d+$/.exec(text)?.[1] ?? text;
  return net.isIP(address) === 0 ? null : address;
}
