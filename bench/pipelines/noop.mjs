// A no-op job that returns its start time, for the workload "isolation". Runners import this file, so it imports little.
import { pipeline } from "../../dist/index.js";
import { implement } from "../../dist/worker/index.js";
import { nowMs } from "../machine.mjs";

export const noop = implement(pipeline("bench"), (_job, { id }) => ({ id, beganMs: nowMs() }));
