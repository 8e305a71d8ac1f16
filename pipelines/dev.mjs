// The web side of the example systems under `npm start`, on one port: each has its API and its page below a path.
import { serve } from "@hono/node-server";
import { Hono } from "hono";
import { startClip } from "./clip/dist/demo/start.js";
import { startExtraction } from "./extraction/dist/demo/start.js";
import { startLeaderboard } from "./leaderboard/dist/demo/start.js";

const FIRST_PORT = 4710;

/** Called by `stillwake dev` through the `dev` option of the configuration. */
export async function startApplications(dev) {
  if (!dev.embedded) {
    return { lines: ["The example systems create their own tables, so they run only with the embedded Postgres."] };
  }
  const applications = {
    extraction: await startExtraction({ ...dev, base: "/extraction" }),
    leaderboard: await startLeaderboard({ ...dev, base: "/leaderboard" }),
    clip: await startClip({ ...dev, base: "/clip" }),
  };
  const site = new Hono();
  for (const [name, application] of Object.entries(applications)) {
    const handle = (context) => application.fetch(context.req.raw);
    site.all(`/${name}`, handle).all(`/${name}/*`, handle);
  }
  const links = Object.keys(applications).map((name) => `<li><a href="/${name}/">${name}</a></li>`);
  site.get("/", (context) =>
    context.html(`<!doctype html><html lang="en"><title>Example systems</title><ul>${links.join("")}</ul></html>`),
  );
  const { url, close } = await listen(site, Number(process.env.STILLWAKE_EXAMPLES_PORT ?? FIRST_PORT));
  return {
    env: Object.assign({}, ...Object.values(applications).map(({ env }) => env)),
    lines: Object.entries(applications).map(([name, { line }]) => `${line} ${url}/${name}/`),
    async close() {
      await close();
      for (const application of Object.values(applications)) await application.close();
    },
  };
}

/** Tries up to twenty ports after the first one if they are in use. */
async function listen(site, first) {
  for (let port = first; ; port++) {
    try {
      return await new Promise((resolve, reject) => {
        const server = serve({ fetch: site.fetch, port, hostname: "127.0.0.1" }, (address) => {
          const close = () =>
            new Promise((closed) => {
              server.close(closed);
              server.closeAllConnections();
            });
          resolve({ url: `http://127.0.0.1:${address.port}`, close });
        });
        server.once("error", reject);
      });
    } catch (error) {
      if (error.code !== "EADDRINUSE" || first === 0 || port >= first + 20) throw error;
    }
  }
}
