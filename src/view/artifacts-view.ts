// The files a job has made, each with a button that fetches it: a link could not carry the token. Asked for when steps are kept and when the job has ended.

import { saveFile } from "./clipboard.ts";
import { make, mount, say } from "./dom.ts";
import type { JobStore } from "./job-store.ts";
import { isHidden, onReturn } from "./page-visibility.ts";
import { plainLine } from "./plain.ts";
import { addressOf } from "./stream.ts";
import type { Artifact } from "./wire.ts";
import { count } from "./words.ts";

const FIRST_MS = 1000;
const MAX_MS = 30_000;

export class ArtifactsView {
  readonly #store: JobStore;
  readonly #host: HTMLElement;
  readonly #list = make("ul", { part: "artifacts" });
  readonly #unsubscribe: () => void;
  readonly #stopListening: () => void;
  readonly #leaving = new AbortController();
  #askedFor = "";
  #asked = 0;
  #failures = 0;
  #again: ReturnType<typeof setTimeout> | undefined;

  constructor(container: Element, store: JobStore) {
    this.#store = store;
    const { host, root } = mount(container, "artifacts", STYLE, "artifacts, artifact");
    this.#host = host;
    root.append(this.#list);
    this.#list.hidden = true;
    this.#unsubscribe = store.subscribe(() => void this.#look());
    this.#stopListening = onReturn(() => void this.#look());
    void this.#look();
  }

  destroy(): void {
    this.#leaving.abort();
    clearTimeout(this.#again);
    this.#stopListening();
    this.#unsubscribe();
    this.#host.remove();
  }

  async #look(): Promise<void> {
    const { job, steps } = this.#store.getSnapshot();
    if (!job || isHidden()) return;
    const kept = steps.filter(({ state }) => state === "kept").length;
    const state = `${kept} ${job.state} ${job.attempt}`;
    if (state === this.#askedFor) return;
    this.#askedFor = state;
    clearTimeout(this.#again);
    const asked = ++this.#asked;
    const artifacts = await this.#ask().catch(() => null);
    // A later ask knows better.
    if (asked !== this.#asked || this.#leaving.signal.aborted || artifacts === undefined) return;
    if (artifacts === null) {
      const wait = Math.min(MAX_MS, FIRST_MS * 2 ** this.#failures) * (0.5 + Math.random() / 2);
      this.#failures += 1;
      this.#again = setTimeout(() => {
        this.#askedFor = "";
        void this.#look();
      }, wait);
      return;
    }
    this.#failures = 0;
    this.#list.hidden = artifacts.length === 0;
    this.#list.replaceChildren(...artifacts.map((artifact) => this.#itemOf(artifact)));
  }

  /** Undefined for one who may not see them. Throws when it is worth asking again. */
  async #ask(): Promise<Artifact[] | undefined> {
    const response = await this.#fetch("/artifacts");
    const { status } = response;
    const isFixed = typeof this.#store.token !== "function";
    if (status === 403 || status === 404 || (status === 401 && isFixed)) return undefined;
    if (!response.ok) throw new Error(String(status));
    return ((await response.json()) as { artifacts: Artifact[] }).artifacts;
  }

  #itemOf({ name, size }: Artifact): HTMLElement {
    const save = make("button", { type: "button", part: "artifact" }, plainLine(name));
    const note = make("span", { class: "size", role: "status" }, sizeOf(size));
    save.addEventListener("click", async () => {
      save.disabled = true;
      try {
        const response = await this.#fetch(`/artifacts/${name.split("/").map(encodeURIComponent).join("/")}`);
        if (!response.ok) throw new Error(String(response.status));
        saveFile(name, await response.blob());
        say(note, sizeOf(size));
      } catch {
        if (!this.#leaving.signal.aborted) say(note, "It could not be fetched. Try again.");
      } finally {
        save.disabled = false;
      }
    });
    return make("li", {}, save, " ", note);
  }

  async #fetch(path: string): Promise<Response> {
    const { id, server, token: source } = this.#store;
    const token = typeof source === "function" ? await source() : source;
    return fetch(addressOf(server, id, path), {
      headers: token === undefined ? {} : { authorization: `Bearer ${token}` },
      credentials: token === undefined ? "same-origin" : "omit",
      cache: "no-store",
      signal: this.#leaving.signal,
    });
  }
}

function sizeOf(bytes: number): string {
  if (bytes < 1000) return `${bytes} bytes`;
  return bytes < 1_000_000 ? `${count(bytes / 1000)} kB` : `${count(bytes / 1_000_000)} MB`;
}

const STYLE = `
:host { display: block; font: 13px/20px var(--stillwake-font, system-ui, sans-serif); }
[hidden] { display: none !important; }
ul { list-style: none; margin: 0; padding: 0; display: flex; flex-wrap: wrap; gap: 8px 16px; }
button {
  font: inherit; color: var(--stillwake-accent, light-dark(#0f766e, #2dd4bf)); background: none; border: 1px solid currentColor; border-radius: 6px; padding: 3px 10px;
  cursor: pointer; min-height: 28px; overflow-wrap: anywhere;
}
button::before { content: "↓ " / ""; }
button:focus-visible { outline: 2px solid currentColor; outline-offset: 2px; }
button:disabled { opacity: 0.6; cursor: progress; }
.size { opacity: 0.75; font-variant-numeric: tabular-nums; }
`;
