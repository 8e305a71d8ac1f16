// Tells the user when a command waits for a Postgres that does not respond: a silent minute looks like a hang.
import net from "node:net";

const NOTICE_AFTER_MS = 2000;
const PROBE_TIMEOUT_MS = 2000;

/**
 * Runs `work`. After two seconds it probes the address of the database and prints a notice if nothing responds there;
 * a database that responds is only slow.
 */
export async function withWaitNotice<Result>(
  url: string,
  print: (line: string) => void,
  work: () => Promise<Result>,
): Promise<Result> {
  let done = false;
  let probe: net.Socket | undefined;
  const timer = setTimeout(async () => {
    // Loaded by the command already, and by no command that needs no database.
    const { splitHosts } = await import("../../db/hosts.ts");
    if (done) return;
    const { name, address } = parseAddress(splitHosts(url)[0]!);
    const onUnreachable = () => {
      probe?.destroy();
      if (!done) print(`Waiting for Postgres at ${name}…`);
    };
    probe = net.connect(address);
    probe.setTimeout(PROBE_TIMEOUT_MS, onUnreachable);
    probe.once("error", onUnreachable);
    probe.once("connect", () => probe?.destroy());
  }, NOTICE_AFTER_MS);
  try {
    return await work();
  } finally {
    done = true;
    clearTimeout(timer);
    probe?.destroy();
  }
}

/** Host and port only: the rest of the URL may be secret. */
function parseAddress(text: string): { name: string; address: net.NetConnectOpts } {
  const url = new URL(text);
  const host = url.searchParams.get("host") || decodeURIComponent(url.hostname).replace(/^\[|\]$/g, "") || "localhost";
  const port = Number(url.searchParams.get("port") || url.port || 5432);
  if (host.startsWith("/")) return { name: host, address: { path: `${host}/.s.PGSQL.${port}` } };
  return { name: `${host.includes(":") ? `[${host}]` : host}:${port}`, address: { host, port } };
}
