// The artifacts of a job, each with a download button: a link could not carry the token. The list is fetched when a step
// is saved and when the job ends.

import { formatBytes } from "../text/format.ts";
import { saveFile } from "./clipboard.ts";
import { createElement, mount, setText } from "./dom.ts";
import type { JobStore } from "./job-store.ts";
import { isHidden, onVisible } from "./page-visibility.ts";
import { escapeTextLine } from "./safe-text.ts";
import { jobUrl } from "./stream.ts";
import type { Artifact } from "./wire.ts";

const INITIAL_RETRY_MS = 1000;
const MAX_RETRY_MS = 30_000;

export class ArtifactsView {
  readonly #store: JobStore;
  readonly #host: HTMLElement;
  readonly #list = createElement("ul", { part: "artifacts" });
  readonly #unsubscribe: () => void;
  readonly #stopListening: () => void;
  readonly #destroyed = new AbortController();
  #loadedState = "";
  #requests = 0;
  #failures = 0;
  #retry: ReturnType<typeof setTimeout> | undefined;

  constructor(container: Element, store: JobStore) {
    this.#store = store;
    const { host, root } = mount(container, "artifacts", STYLE, "artifacts, artifact");
    this.#host = host;
    root.append(this.#list);
    this.#list.hidden = true;
    this.#unsubscribe = store.subscribe(() => void this.#load());
    this.#stopListening = onVisible(() => void this.#load());
    void this.#load();
  }

  destroy(): void {
    this.#destroyed.abort();
    clearTimeout(this.#retry);
    this.#stopListening();
    this.#unsubscribe();
    this.#host.remove();
  }

  async #load(): Promise<void> {
    const { job, steps } = this.#store.getSnapshot();
    if (!job || isHidden()) return;
    const kept = steps.filter(({ state }) => state === "kept").length;
    const state = `${kept} ${job.state} ${job.attempt}`;
    if (state === this.#loadedState) return;
    this.#loadedState = state;
    clearTimeout(this.#retry);
    const request = ++this.#requests;
    const artifacts = await this.#fetchList().catch(() => null);
    // A later request has newer data.
    if (request !== this.#requests || this.#destroyed.signal.aborted || artifacts === undefined) return;
    if (artifacts === null) {
      const wait = Math.min(MAX_RETRY_MS, INITIAL_RETRY_MS * 2 ** this.#failures) * (0.5 + Math.random() / 2);
      this.#failures += 1;
      this.#retry = setTimeout(() => {
        this.#loadedState = "";
        void this.#load();
      }, wait);
      return;
    }
    this.#failures = 0;
    this.#list.hidden = artifacts.length === 0;
    this.#list.replaceChildren(...artifacts.map((artifact) => this.#createItem(artifact)));
  }

  /** Undefined when the token may not see the artifacts. Throws on an error that is worth a retry. */
  async #fetchList(): Promise<Artifact[] | undefined> {
    const response = await this.#fetch("/artifacts");
    const { status } = response;
    const isFixedToken = typeof this.#store.token !== "function";
    if (status === 403 || status === 404 || (status === 401 && isFixedToken)) return undefined;
    if (!response.ok) throw new Error(String(status));
    return ((await response.json()) as { artifacts: Artifact[] }).artifacts;
  }

  #createItem({ name, size }: Artifact): HTMLElement {
    const save = createElement("button", { type: "button", part: "artifact" }, escapeTextLine(name));
    const note = createElement("span", { class: "size", role: "status" }, formatBytes(size));
    save.addEventListener("click", async () => {
      save.disabled = true;
      try {
        const response = await this.#fetch(`/artifacts/${name.split("/").map(encodeURIComponent).join("/")}`);
        if (!response.ok) throw new Error(String(response.status));
        saveFile(name, await response.blob());
        setText(note, formatBytes(size));
      } catch {
        if (!this.#destroyed.signal.aborted) setText(note, "Download failed. Try again.");
      } finally {
        save.disabled = false;
      }
    });
    return createElement("li", {}, save, " ", note);
  }

  async #fetch(path: string): Promise<Response> {
    const { id, server, token: source } = this.#store;
    const token = typeof source === "function" ? await source() : source;
    return fetch(jobUrl(server, id, path), {
      headers: token === undefined ? {} : { authorization: `Bearer ${token}` },
      credentials: token === undefined ? "same-origin" : "omit",
      cache: "no-store",
      signal: this.#destroyed.signal,
    });
  }
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
