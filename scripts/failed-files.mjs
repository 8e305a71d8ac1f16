// A reporter for scripts/vitest.mjs: which files have failed, and with what. A file with an uncaught error has failed as well, though all its tests
// have passed, and so has one whose process was killed; an error that belongs to no file is listed without one.
import fs from "node:fs";
import path from "node:path";

export default class FailedFiles {
  onTestRunEnd(modules, unhandled) {
    const failed = new Map();
    const add = (file, error) => {
      const name = file === undefined ? "" : path.relative(process.cwd(), file);
      failed.set(name, [...(failed.get(name) ?? []), error]);
    };
    const [lost, others] = [unhandled.filter(isLostProcess), unhandled.filter((error) => !isLostProcess(error))];
    for (const module of modules) {
      if (lost.length > 0 && module.state() === "pending") add(module.moduleId, "its process was killed");
      if (module.state() !== "failed") continue;
      for (const error of module.errors()) add(module.moduleId, summary(error));
      for (const test of module.children.allTests("failed"))
        for (const error of test.result().errors ?? []) add(module.moduleId, `${test.fullName}: ${summary(error)}`);
      if (!failed.has(path.relative(process.cwd(), module.moduleId))) add(module.moduleId, "a hook or suite failed");
    }
    if (lost.length > failed.size) others.push(...lost);
    for (const error of others) add(error.VITEST_TEST_PATH, `caught by no test: ${summary(error)}`);
    fs.writeFileSync(process.env.STILLWAKE_FAILED_FILES, JSON.stringify(Object.fromEntries(failed)));
  }
}

/** Vitest does not say whose process it was. */
function isLostProcess({ message }) {
  return String(message).startsWith("[vitest-pool]: Worker");
}

function summary({ name, message, stack }) {
  const where = String(stack ?? "").match(/^\s+at .*$/gm) ?? [];
  return [`${name}: ${String(message).slice(0, 2000)}`, ...where.slice(0, 8)].join("\n");
}
