// Making elements. Text is only ever a text node, and styles are sheets of the view's own that no policy of a page forbids: nothing is parsed as HTML or inline style.

type Attributes = Record<string, string | boolean | null | undefined>;

export function make<Tag extends keyof HTMLElementTagNameMap>(
  tag: Tag,
  attributes: Attributes = {},
  ...children: (Node | string)[]
): HTMLElementTagNameMap[Tag] {
  const element = document.createElement(tag);
  set(element, attributes);
  element.append(...children);
  return element;
}

export function set(element: Element, attributes: Attributes): void {
  for (const [name, value] of Object.entries(attributes)) {
    if (value === undefined) continue;
    if (value === null || value === false) element.removeAttribute(name);
    else if (element.getAttribute(name) !== String(value === true ? "" : value)) {
      element.setAttribute(name, value === true ? "" : value);
    }
  }
}

/** Sets it only when it differs: what stays the same is neither drawn nor read out again. */
export function say(element: Element, text: string): void {
  if (element.textContent !== text) element.textContent = text;
}

/** A drawing of one path in a square of ten. */
export function icon(path: string, name: string): SVGSVGElement {
  const space = "http://www.w3.org/2000/svg";
  const svg = document.createElementNS(space, "svg");
  set(svg, { viewBox: "0 0 10 10", class: `icon ${name}`, "aria-hidden": "true" });
  const shape = document.createElementNS(space, "path");
  set(shape, { d: path });
  svg.append(shape);
  return svg;
}

const sheets = new Map<string, CSSStyleSheet>();

/** A shadow root of an element that is made for it, so that the container stays the page's own. Its parts are also those of an element around it. */
export function mount(
  container: Element,
  name: string,
  css: string,
  parts: string,
): { host: HTMLElement; root: ShadowRoot } {
  const host = make("div", { class: `stillwake-${name}`, exportparts: parts });
  const root = host.attachShadow({ mode: "open" });
  dress(root, name, css);
  container.append(host);
  return { host, root };
}

export function dress(root: ShadowRoot, name: string, css: string): void {
  let sheet = sheets.get(name);
  if (!sheet) {
    sheet = new CSSStyleSheet();
    sheet.replaceSync(css);
    sheets.set(name, sheet);
  }
  root.adoptedStyleSheets = [sheet];
}
