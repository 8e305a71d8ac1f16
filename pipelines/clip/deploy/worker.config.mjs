// The worker of the clips with the settings of the requirements: `stillwake worker --config pipelines/clip/deploy/worker.config.mjs`.
import { defineConfig } from "stillwake";
import { readWorkerOptions } from "../dist/worker-settings.js";

export default defineConfig({ pipelines: "../dist/pipeline.js", ...readWorkerOptions() });
