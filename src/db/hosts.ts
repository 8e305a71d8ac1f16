// URLs with several hosts, such as postgres://a:5432,b:5432/app?target_session_attrs=read-write. The hosts are tried in
// order and the first one that accepts writes is used, by every connection of the process to that URL. After a lost
// connection, or when that server turns out to be a standby, the next connection searches again: so a failover needs
// no change of the URL. The driver knows one host only; everything that opens a connection gets its client here.
import pg from "pg";
import { InvalidInput } from "../errors.ts";

/** How long one host may take to answer while the writable one is searched. */
const SEARCH_TIMEOUT_MS = 2000;

const REMEDY = "Use postgres://user:password@host1:5432,host2:5432/database?target_session_attrs=read-write";

/** One URL per host, in order. A URL with one host is returned as it is. Messages omit the URL: it contains a password. */
export function splitHosts(url: string): string[] {
  const parts = /^(postgres(?:ql)?:\/\/(?:[^/?#]*@)?)([^/?#@]*)(.*)$/s.exec(url);
  if (!parts) return [url];
  const [, start, authority, rest] = parts as unknown as [string, string, string, string];
  const parameters = new URLSearchParams(/\?([^#]*)/.exec(rest)?.[1] ?? "");
  const named = parameters.get("host")?.split(",");
  const hosts = named ?? authority.split(",");
  if (hosts.length === 1 && !authority.includes(",")) {
    checkSessionAttributes(parameters.get("target_session_attrs"));
    return [url];
  }
  if (hosts.some((host) => host === "" || host === ":")) reject("has an empty host");
  const ports = parameters.get("port")?.split(",") ?? [""];
  if (ports.length > 1 && ports.length !== hosts.length) {
    reject(`has ${hosts.length} hosts and ${ports.length} ports`, "Give one port for all hosts, or one for each");
  }
  if (parameters.has("hostaddr")) reject("has the parameter hostaddr, which is not supported", "Put addresses in host");
  checkSessionAttributes(parameters.get("target_session_attrs"));
  return hosts.map((host, index) => {
    const port = ports[ports.length === 1 ? 0 : index]!;
    const own = new URLSearchParams(parameters);
    own.delete("host");
    own.delete("port");
    // A socket directory cannot be the host of a URL.
    if (host.startsWith("/")) own.set("host", host);
    const address = host.startsWith("/") ? "" : port && !/:\d+$/.test(host) ? `${host}:${port}` : host;
    if (host.startsWith("/") && port) own.set("port", port);
    const path = rest.replace(/[?#].*$/s, "");
    const query = String(own);
    const single = `${start}${address}${path}${query ? `?${query}` : ""}`;
    if (!host.startsWith("/") && !URL.canParse(single)) reject(`has an invalid host, number ${index + 1}`);
    return single;
  });
}

/** Stillwake writes with every connection, so what leads to a standby cannot work. */
function checkSessionAttributes(value: string | null): void {
  if (value === null || ["any", "read-write", "primary"].includes(value)) return;
  reject(
    `has target_session_attrs=${value}, which ${["read-only", "standby", "prefer-standby"].includes(value) ? "leads to a standby: Stillwake writes with every connection" : "is not known"}`,
    "Use target_session_attrs=read-write, or leave it out",
  );
}

function reject(problem: string, remedy = REMEDY): never {
  throw new InvalidInput(`url ${problem}`, { field: "url", remedy });
}

/** The hosts of one URL, and which of them is known to accept writes. */
class Hosts {
  readonly #urls: string[];
  #writable: string | undefined;
  #searching: Promise<string> | undefined;

  constructor(urls: string[]) {
    this.#urls = urls;
  }

  /** The URL of the writable host. Concurrent callers share one search. */
  async find(): Promise<string> {
    if (this.#writable) return this.#writable;
    this.#searching ??= this.#search().finally(() => {
      this.#searching = undefined;
    });
    return this.#searching;
  }

  /** A connection to this host was not opened, was lost, or was one to a standby. */
  forget(url: string): void {
    if (this.#writable === url) this.#writable = undefined;
  }

  async #search(): Promise<string> {
    const failures: Error[] = [];
    for (const url of this.#urls) {
      const problem = await probe(url);
      if (!problem) {
        this.#writable = url;
        return url;
      }
      failures.push(problem);
    }
    const reasons = failures.map((failure, index) => `${describe(this.#urls[index]!)}: ${failure.message}`).join("; ");
    throw Object.assign(new Error(`None of ${failures.length} hosts accepts writes: ${reasons}`), {
      // The code of the failure that a remedy exists for, such as a wrong password; otherwise as if refused.
      code:
        failures.map((failure) => (failure as { code?: string }).code).find((code) => code?.startsWith("28")) ??
        "08001",
    });
  }
}

/** Undefined when the server accepts writes. */
async function probe(url: string): Promise<Error | undefined> {
  const client = new pg.Client({
    connectionString: url,
    application_name: "stillwake hosts",
    connectionTimeoutMillis: SEARCH_TIMEOUT_MS,
    query_timeout: SEARCH_TIMEOUT_MS,
  });
  client.on("error", () => {});
  try {
    await client.connect();
    const { rows } = await client.query("select current_setting('transaction_read_only') as only");
    return rows[0].only === "on" ? standby() : undefined;
  } catch (error) {
    return error as Error;
  } finally {
    void client.end().catch(() => {});
  }
}

function standby(): Error {
  return Object.assign(new Error("it is a standby or read-only"), { code: "25006" });
}

function describe(url: string): string {
  const { host, port } = new pg.Client(url);
  return host.startsWith("/") ? host : `${host}:${port}`;
}

const known = new Map<string, typeof pg.Client>();

/** The driver's client for this URL, and the URL to construct it with. */
export function clientFor(url: string): { Client: typeof pg.Client; connectionString: string } {
  const urls = splitHosts(url);
  if (urls.length === 1) return { Client: pg.Client, connectionString: url };
  let Client = known.get(url);
  if (!Client) {
    Client = multiHostClient(new Hosts(urls));
    known.set(url, Client);
  }
  return { Client, connectionString: urls[0]! };
}

type Connected = (error?: Error) => void;

/** What the driver does not declare. */
interface Internals {
  connection: { on(event: "parameterStatus", listener: (status: Status) => void): void };
}

interface Status {
  parameterName: string;
  parameterValue: string;
}

function multiHostClient(hosts: Hosts): typeof pg.Client {
  class MultiHostClient extends pg.Client {
    override connect(): Promise<pg.Client>;
    override connect(callback: Connected): void;
    override connect(callback?: Connected): Promise<pg.Client> | undefined {
      const connected = this.#connect().then(() => this as pg.Client);
      if (!callback) return connected;
      connected.then(
        () => callback(),
        (error) => callback(error),
      );
      return undefined;
    }

    async #connect(): Promise<void> {
      const url = await hosts.find();
      const { host, port } = new pg.Client(url);
      Object.assign(this, { host, port });
      // Postgres reports both at connect; libpq decides by them too.
      let isReadOnly = false;
      (this as unknown as Internals).connection.on("parameterStatus", ({ parameterName, parameterValue }) => {
        if (["in_hot_standby", "default_transaction_read_only"].includes(parameterName)) {
          isReadOnly ||= parameterValue === "on";
        }
      });
      this.once("error", () => hosts.forget(url));
      try {
        await super.connect();
      } catch (error) {
        hosts.forget(url);
        throw error;
      }
      if (!isReadOnly) return;
      hosts.forget(url);
      void super.end().catch(() => {});
      throw standby();
    }
  }
  return MultiHostClient;
}
