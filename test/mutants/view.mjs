// Mutants of what people see: the live view, the pages that the server hands out, the law by which a page looks again. In the same shape as those of the
// engine, of which mutants.mjs makes them a part.

const STREAM = "test/live/view-stream.test.ts";
const VIEW = "test/live/view.test.ts";
const FOLLOW = "test/live/view-follow.test.ts";
const PAGES = "test/server/pages.test.ts";
const LISTS = "test/web/lists.test.ts";
const FORMS = "test/web/forms.test.ts";
const TIMELINE = "test/web/timeline.test.ts";

const inFile = (file) => (old, text) => ({ file, old, new: text });
const stream = inFile("src/view/stream.ts");
const sse = inFile("src/view/sse.ts");
const story = inFile("src/view/job-store.ts");
const steps = inFile("src/view/steps.ts");
const pace = inFile("src/view/pace.ts");
const plain = inFile("src/view/plain.ts");
const lineText = inFile("src/view/log/line-text.ts");
const words = inFile("src/view/words.ts");
const shared = inFile("src/react/shared.ts");
const pages = inFile("src/server/http/pages.ts");
const app = inFile("src/server/app.ts");
const house = inFile("src/server/context.ts");
const form = inFile("web/src/parts/form/form-model.ts");
const timeline = inFile("web/src/parts/timeline/timeline-model.ts");
const refresh = inFile("web/src/api/refresh.ts");

/** @type {{ name: string, killedBy: string, only?: string, edits: { file: string, old: string, new: string }[] }[]} */
export const view = [
  {
    name: "view: a line that comes again is told again",
    killedBy: STREAM,
    only: "cut at any byte",
    edits: [stream("if (seq <= this.#lastSeq) return;", ""), stream('"last-event-id": this.#lastId', '"x-none": "1"')],
  },
  {
    name: "view: a connection begins where none has told anything yet",
    killedBy: STREAM,
    only: "cut at any byte",
    edits: [
      stream(
        "if (told.id !== undefined) this.#lastId = told.id;",
        'this.#lastId = undefined; if (told.event === "log" && this.#lastSeq % 7n === 0n) return;',
      ),
    ],
  },
  {
    name: "view: half an event is one",
    killedBy: VIEW,
    only: "however the bytes are cut",
    edits: [sse("rest = text.slice(from);", 'rest = "";')],
  },
  {
    name: "view: a character is decoded in halves",
    killedBy: VIEW,
    only: "however the bytes are cut",
    edits: [sse("{ stream: true }", "{}")],
  },
  {
    name: "view: a silent connection is kept",
    killedBy: STREAM,
    only: "has gone silent",
    edits: [
      stream(
        "if (Date.now() - this.#heardAt >= this.#patience.silence || this.#isUnseen()) cut();",
        "if (this.#isUnseen()) cut();",
      ),
    ],
  },
  {
    name: "view: a tab that nobody sees holds its stream",
    killedBy: STREAM,
    only: "while nobody looks",
    edits: [stream("this.#patience.silence || this.#isUnseen()", "this.#patience.silence")],
  },
  {
    name: "view: a refused page asks on",
    killedBy: STREAM,
    only: "is refused",
    edits: [stream("if (error instanceof Refused) {", "if (error instanceof Refused && this.#failures > 9) {")],
  },
  {
    name: "view: a page that was refused says what was true before",
    killedBy: FOLLOW,
    only: "last told",
    edits: [
      words("if (refused !== null && !job?.endedAt) return refused;", "if (refused !== null && !job) return refused;"),
    ],
  },
  {
    name: "view: a proxy can refuse in the name of the server",
    killedBy: FOLLOW,
    only: "the server alone",
    edits: [stream(' || !type.startsWith("application/problem+json")', "")],
  },
  {
    name: "view: bytes that tell nothing make a good connection",
    killedBy: FOLLOW,
    only: "less and less often",
    edits: [stream("        this.#heardAt = Date.now();\n        take", "        this.#failures = 0;\n        take")],
  },
  {
    name: "view: whoever was refused is never let in again",
    killedBy: FOLLOW,
    only: "comes back to the page",
    edits: [stream("          await this.#pause(undefined, signal);\n          continue;", "          return;")],
  },
  {
    name: "view: a token that ran out after an outage is kept",
    killedBy: FOLLOW,
    only: "whatever went wrong before",
    edits: [stream("++this.#unauthorized < MAX_TOKENS", "this.#failures < MAX_TOKENS")],
  },
  {
    name: "view: a token that never comes holds up everything",
    killedBy: FOLLOW,
    only: "never answers",
    edits: [stream("await unlessCut(token(), signal)", "await token()")],
  },
  {
    name: "view: one gap is told as often as the connection is cut",
    killedBy: FOLLOW,
    only: "the gap once",
    edits: [stream("if (told.data.next === this.#gapBefore) return;", "")],
  },
  {
    name: "view: what has ended is never looked at again",
    killedBy: FOLLOW,
    only: "after nobody was there",
    edits: [
      story("if (!this.#isOpen) this.#stream.reopen();", 'if (this.#connection !== "over") this.#stream.start();'),
    ],
  },
  {
    name: "view: one person's job is shown with the token of another",
    killedBy: FOLLOW,
    only: "by nobody else",
    edits: [shared("if (!numbers.has(token)) numbers.set(token, ++given);", "numbers.set(token, 1);")],
  },
  {
    name: "view: lines that the server has lost stay beside those it has",
    killedBy: VIEW,
    only: "begins anew",
    edits: [story("      this.#lines = [];\n", "")],
  },
  {
    name: "view: a retried job stays ended",
    killedBy: VIEW,
    only: "retried",
    edits: [story("if (job.endedAt === null) this.#end = null;", "")],
  },
  {
    name: "view: the end of a job is no line",
    killedBy: STREAM,
    only: "restarted underneath",
    edits: [story('if (last?.kind === "end") return;', "return;")],
  },
  {
    name: "view: what was under way when a worker died goes on",
    killedBy: VIEW,
    only: "sets aside",
    edits: [steps('if (step.state === "running") this.#set({ ...step, state: "interrupted" });', "void step;")],
  },
  {
    name: "view: an optional step that failed is under way",
    killedBy: VIEW,
    only: "given up",
    edits: [steps('state: missing ? "missing" : "running",', 'state: "running",')],
  },
  {
    name: "view: the pace is that of the burst after a reconnect",
    killedBy: VIEW,
    only: "the moments at which the job spoke",
    edits: [pace("const at = Number.isNaN(said) ? heardAt : said;", "const at = heardAt;")],
  },
  {
    name: "view: a step back is progress",
    killedBy: VIEW,
    only: "step back",
    edits: [pace("if (last && (fraction < last.fraction || at < last.at)) this.#seen = [];", "void last;")],
  },
  {
    name: "view: text of strangers is shown as it is",
    killedBy: VIEW,
    only: "T58",
    edits: [plain("return inert(text", "return String(text")],
  },
  {
    name: "view: a secret in a payload is shown",
    killedBy: VIEW,
    only: "looks like a secret",
    edits: [plain("if (isSecret(names, child)) {", "if (isSecret(names, child) && indent.length > 8) {")],
  },
  {
    name: "view: a copied line can forge another",
    killedBy: VIEW,
    only: "forge",
    edits: [lineText('plain(message).replaceAll("\\n"', 'plain(message).replaceAll("\\u0000"')],
  },
  {
    name: "view: pages may make markup of text",
    killedBy: PAGES,
    only: "S9",
    edits: [pages("require-trusted-types-for 'script'; trusted-types 'none'", "trusted-types *")],
  },
  {
    name: "view: pages of a server without tokens are shown under any name",
    killedBy: PAGES,
    only: "made to lead here",
    edits: [app("      refuseForeign(house, c.req.raw);\n      return page;", "      return page;")],
  },
  {
    name: "view: a path can carry markup into the page",
    killedBy: PAGES,
    only: "mounted at",
    edits: [house("/^(\\/[\\w.~-]+)*\\/?$/.test(path)", "/^\\//.test(path)")],
  },
  {
    name: "view: a hidden tab keeps asking",
    killedBy: LISTS,
    only: "nobody looks",
    edits: [refresh("if (!visible) return false;", "")],
  },
  {
    name: "view: a tab that nobody touches keeps asking",
    killedBy: LISTS,
    only: "nobody looks",
    edits: [refresh("if (untouchedMs > REST_AFTER_MS) return false;", "")],
  },
  {
    name: "view: a sealed value can be typed into the form",
    killedBy: FORMS,
    only: "sealed",
    edits: [form("isSame(path, place.at)", "isSame(path, place.at) && path.length > 9")],
  },
  {
    name: "view: work that was kept counts as in vain",
    killedBy: TIMELINE,
    only: "in vain what was done after",
    edits: [timeline("ended - Math.max(began, ...saved)", "ended - began")],
  },
];
