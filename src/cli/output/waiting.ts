// A database that is away is waited for. Whoever waits along is told for whom, and that there is no answer: a silent minute looks like a hang.
import net from "node:net";

const QUIET_MS = 2000;
const PROBE_MS = 2000;

/** Says where it waits after two seconds, if nobody answers there; a database that answers may just have much to do. */
export async function sayingWhere<Result>(
  url: string,
  say: (line: string) => void,
  work: () => Promise<Result>,
): Promise<Result> {
  let done = false;
  let probe: net.Socket | undefined;
  const timer = setTimeout(() => {
    const { name, address } = placeOf(url);
    const away = () => {
      probe?.destroy();
      if (!done) say(`Waiting for Postgres at ${name}…`);
    };
    probe = net.connect(address);
    probe.setTimeout(PROBE_MS, away);
    probe.once("error", away);
    probe.once("connect", () => probe?.destroy());
  }, QUIET_MS);
  try {
    return await work();
  } finally {
    done = true;
    clearTimeout(timer);
    probe?.destroy();
  }
}

/** Host and port alone: the rest of a URL may be secret. */
function placeOf(text: string): { name: string; address: net.NetConnectOpts } {
  const url = new URL(text);
  const host = url.searchParams.get("host") || decodeURIComponent(url.hostname).replace(/^\[|\]$/g, "") || "localhost";
  const port = Number(url.searchParams.get("port") || url.port || 5432);
  if (host.startsWith("/")) return { name: host, address: { path: `${host}/.s.PGSQL.${port}` } };
  return { name: `${host.includes(":") ? `[${host}]` : host}:${port}`, address: { host, port } };
}
