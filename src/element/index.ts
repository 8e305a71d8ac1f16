// stillwake/element: <stillwake-job>, for pages without a framework. Shows the progress, the log and the artifacts of a
// job. Importing it registers the element; without customElements, as during server rendering, it does nothing.
import { ArtifactsView } from "../view/artifacts-view.ts";
import { adoptStyles, createElement } from "../view/dom.ts";
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
  #isUpdateQueued = false;

  /** The store of the job; undefined while no job is shown. */
  get store(): JobStore | undefined {
    return this.#store;
  }

  /** A read token, or a function that returns one. The property takes precedence over the attribute. */
  get token(): TokenSource | undefined {
    return this.#token ?? this.getAttribute("token") ?? undefined;
  }

  set token(token: TokenSource | undefined) {
    this.#token = token;
    this.#queueUpdate();
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
    // A property that the page set before this module was loaded hides the accessor.
    for (const name of ["token", "job", "server"] as const) {
      if (!Object.hasOwn(this, name)) continue;
      const value = this[name];
      delete (this as Partial<StillwakeJob>)[name];
      Object.assign(this, { [name]: value });
    }
    this.#queueUpdate();
  }

  disconnectedCallback(): void {
    this.#queueUpdate();
  }

  attributeChangedCallback(_name: string, before: string | null, now: string | null): void {
    if (before !== now) this.#queueUpdate();
  }

  /** Several changes in a row, or a move within the page, cause one update. */
  #queueUpdate(): void {
    if (this.#isUpdateQueued) return;
    this.#isUpdateQueued = true;
    queueMicrotask(() => {
      this.#isUpdateQueued = false;
      this.#update();
    });
  }

  #update(): void {
    const { job, server, token } = this;
    if (!this.isConnected || job === "") {
      this.#clear();
      return;
    }
    const isSameJob = this.#store?.id === job && this.#store.server === server && this.#store.token === token;
    const show = this.getAttribute("show") ?? PARTS.join(" ");
    if (isSameJob && this.#shown === show) {
      // The element was moved within the page: filters and search are kept.
      for (const view of this.#views) view.update?.();
      return;
    }
    this.#shown = show;
    for (const view of this.#views.splice(0)) view.destroy();
    if (!isSameJob) this.#store?.close();
    const store = isSameJob ? this.#store! : new JobStore({ id: job, server, token });
    this.#store = store;
    const root = this.shadowRoot ?? this.attachShadow({ mode: "open" });
    adoptStyles(root, "job", STYLE);
    const parts = show.split(/\s+/);
    const sections = PARTS.filter((part) => parts.includes(part)).map((part) => {
      return [part, createElement("section", { class: part, part: `section-${part}` })] as const;
    });
    root.replaceChildren(...sections.map(([, section]) => section));
    for (const [part, section] of sections) {
      if (part === "progress") this.#views.push(new ProgressView(section, store, { alone: !parts.includes("log") }));
      else if (part === "log") this.#views.push(new LogView(section, { store }));
      else this.#views.push(new ArtifactsView(section, store));
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
