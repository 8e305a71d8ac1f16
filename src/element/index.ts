// stillwake/element: <stillwake-job>, for pages without a framework. It says what is happening in a sentence, shows how far it is, the lines, and the files that were
// made. Importing it registers it; while a server renders there is nothing to register with, and it does nothing.
import { ArtifactsView } from "../view/artifacts-view.ts";
import { dress, make } from "../view/dom.ts";
import { JobStore } from "../view/job-store.ts";
import { LogView } from "../view/log/log-view.ts";
import { ProgressView } from "../view/progress-view.ts";
import type { TokenSource } from "../view/stream.ts";

const PARTS = ["progress", "log", "artifacts"] as const;
const Base = (globalThis.HTMLElement ?? class {}) as typeof HTMLElement;

export class StillwakeJob extends Base {
  static readonly observedAttributes = ["server", "token", "job", "show"];
  #store: JobStore | undefined;
  #views: { destroy(): void; update?(): void }[] = [];
  #shown = "";
  #token: TokenSource | undefined;
  #planned = false;

  /** The job whose store is shown, for pages that want to know more. Undefined while it shows none. */
  get store(): JobStore | undefined {
    return this.#store;
  }

  /** A read token, or a function that gives one. The property wins over the attribute. */
  get token(): TokenSource | undefined {
    return this.#token ?? this.getAttribute("token") ?? undefined;
  }

  set token(token: TokenSource | undefined) {
    this.#token = token;
    this.#plan();
  }

  get job(): string {
    return this.getAttribute("job") ?? "";
  }

  set job(id: string) {
    this.setAttribute("job", id);
  }

  get server(): string {
    return this.getAttribute("server") ?? "";
  }

  set server(server: string) {
    this.setAttribute("server", server);
  }

  connectedCallback(): void {
    // What a page has set before this was loaded hides what is here for it.
    for (const name of ["token", "job", "server"] as const) {
      if (!Object.hasOwn(this, name)) continue;
      const value = this[name];
      delete (this as Partial<StillwakeJob>)[name];
      Object.assign(this, { [name]: value });
    }
    this.#plan();
  }

  disconnectedCallback(): void {
    this.#plan();
  }

  attributeChangedCallback(_name: string, before: string | null, now: string | null): void {
    if (before !== now) this.#plan();
  }

  /** Several changes of one moment, or a move within the page, are one. */
  #plan(): void {
    if (this.#planned) return;
    this.#planned = true;
    queueMicrotask(() => {
      this.#planned = false;
      this.#build();
    });
  }

  #build(): void {
    const { job, server, token } = this;
    if (!this.isConnected || job === "") {
      this.#clear();
      return;
    }
    const same = this.#store?.id === job && this.#store.server === server && this.#store.token === token;
    const wanted = this.getAttribute("show") ?? PARTS.join(" ");
    if (same && this.#shown === wanted) {
      // It was moved within the page: what somebody has searched for stays.
      for (const view of this.#views) view.update?.();
      return;
    }
    this.#shown = wanted;
    for (const view of this.#views.splice(0)) view.destroy();
    if (!same) this.#store?.close();
    const store = same ? this.#store! : new JobStore({ id: job, server, token });
    this.#store = store;
    const root = this.shadowRoot ?? this.attachShadow({ mode: "open" });
    dress(root, "job", STYLE);
    const shown = wanted.split(/\s+/);
    const places = PARTS.filter((part) => shown.includes(part)).map((part) => {
      return [part, make("section", { class: part, part: `section-${part}` })] as const;
    });
    root.replaceChildren(...places.map(([, place]) => place));
    for (const [part, place] of places) {
      if (part === "progress") this.#views.push(new ProgressView(place, store, { alone: !shown.includes("log") }));
      else if (part === "log") this.#views.push(new LogView(place, { store }));
      else this.#views.push(new ArtifactsView(place, store));
    }
  }

  #clear(): void {
    for (const view of this.#views.splice(0)) view.destroy();
    this.#store?.close();
    this.#store = undefined;
    this.shadowRoot?.replaceChildren();
  }
}

const STYLE = `
:host { display: flex; flex-direction: column; gap: 16px; }
:host([hidden]) { display: none; }
section { min-width: 0; }
`;

if (globalThis.customElements && !customElements.get("stillwake-job"))
  customElements.define("stillwake-job", StillwakeJob);

declare global {
  interface HTMLElementTagNameMap {
    "stillwake-job": StillwakeJob;
  }
}
