// Starts Redis for a test, from the Debian package, which is installed if this user may install packages; otherwise the
// tests are skipped with a reason.
import { spawn, spawnSync } from "node:child_process";
import { once } from "node:events";
import net from "node:net";
import { waitFor } from "../../../src/testing/index.ts";
import { cleanUp, temporaryDirectory } from "../cleanup.ts";
import { install } from "../processes/debian.ts";

/** Undefined when redis-server can be started, else the reason why not. */
export function findRedis(): string | undefined {
  const isInstalled = () => spawnSync("redis-server", ["--version"]).status === 0;
  if (isInstalled()) return undefined;
  if (process.getuid?.() !== 0) return "redis-server is not installed, and only root may install it";
  try {
    install("redis-server");
  } catch (error) {
    return `redis-server is not installed, and apt-get could not: ${(error as Error).message}`;
  }
  return isInstalled() ? undefined : "redis-server does not start";
}

/** Returns its URL. It stops with the test or the test file. */
export async function startRedis(): Promise<string> {
  const dir = temporaryDirectory("redis");
  const port = await freePort();
  const settings = { bind: "127.0.0.1", port, dir, save: "", "maxmemory-policy": "noeviction" };
  const args = Object.entries(settings).flatMap(([name, value]) => [`--${name}`, String(value)]);
  const child = spawn("redis-server", args, { stdio: "ignore" });
  cleanUp(async () => {
    const exited = once(child, "exit");
    if (child.exitCode === null && child.kill("SIGKILL")) await exited;
  });
  await waitFor(() => isListening(port));
  return `redis://127.0.0.1:${port}`;
}

async function isListening(port: number): Promise<boolean> {
  const socket = net.connect(port, "127.0.0.1");
  const connected = await once(socket, "connect").then(
    () => true,
    () => false,
  );
  socket.destroy();
  return connected;
}

async function freePort(): Promise<number> {
  const server = net.createServer().listen(0, "127.0.0.1");
  await once(server, "listening");
  const { port } = server.address() as net.AddressInfo;
  server.close();
  await once(server, "close");
  return port;
}
