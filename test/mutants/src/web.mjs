// Mutants of the dashboard (web/) and the shared UI (ui/).
export const mutants = [
  {
    name: "a hidden tab keeps polling",
    killedBy: "test/web/lists.test.ts",
    only: "off when the page is not used",
    file: "ui/src/api/refresh.ts",
    old: "if (!visible) return hiddenMs ?? false;",
    new: "",
  },
  {
    name: "an unused tab keeps polling",
    killedBy: "test/web/lists.test.ts",
    only: "off when the page is not used",
    file: "ui/src/api/refresh.ts",
    old: "if (idleMs > PAUSE_AFTER_MS) return false;",
    new: "",
  },
  {
    name: "a sealed value can be typed into the form",
    killedBy: "test/web/forms.test.ts",
    only: "sealed",
    file: "web/src/parts/form/form-model.ts",
    old: "matchesPath(path, position.path)",
    new: "matchesPath(path, position.path) && path.length > 9",
  },
  {
    name: "work saved in a checkpoint is shown as wasted",
    killedBy: "test/web/timeline.test.ts",
    only: "time after the last checkpoint",
    file: "web/src/parts/timeline/timeline-model.ts",
    old: "ended - Math.max(began, ...saved)",
    new: "ended - began",
  },
];
