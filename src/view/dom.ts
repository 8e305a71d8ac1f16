// Creates elements. Text is only ever a text node, and styles are constructed sheets, which a content security policy
// allows: nothing is parsed as HTML or as an inline style.

type Attributes = Record<string, string | boolean | null | undefined>;

export function createElement<Tag extends keyof HTMLElementTagNameMap>(
  tag: Tag,
  attributes: Attributes = {},
  ...children: (Node | string)[]
): HTMLElementTagNameMap[Tag] {
  const element = document.createElement(tag);
  setAttributes(element, attributes);
  element.append(...children);
  return element;
}

export function setAttributes(element: Element, attributes: Attributes): void {
  for (const [name, value] of Object.entries(attributes)) {
    if (value === undefined) continue;
    if (value === null || value === false) element.removeAttribute(name);
    else if (element.getAttribute(name) !== String(value === true ? "" : value)) {
      element.setAttribute(name, value === true ? "" : value);
    }
  }
}

/** Changes the text only if it differs: otherwise it would be rendered and announced again. */
export function setText(element: Element, text: string): void {
  if (element.textContent !== text) element.textContent = text;
}

/** An icon of one path, in a view box of 10 by 10. */
export function icon(path: string, name: string): SVGSVGElement {
  const space = "http://www.w3.org/2000/svg";
  const svg = document.createElementNS(space, "svg");
  setAttributes(svg, { viewBox: "0 0 10 10", class: `icon ${name}`, "aria-hidden": "true" });
  const shape = document.createElementNS(space, "path");
  setAttributes(shape, { d: path });
  svg.append(shape);
  return svg;
}

const sheets = new Map<string, CSSStyleSheet>();

/** Appends an element with a shadow root to the container. `parts` are exported to an enclosing element. */
export function mount(
  container: Element,
  name: string,
  css: string,
  parts: string,
): { host: HTMLElement; root: ShadowRoot } {
  const host = createElement("div", { class: `stillwake-${name}`, exportparts: parts });
  const root = host.attachShadow({ mode: "open" });
  adoptStyles(root, name, css);
  container.append(host);
  return { host, root };
}

export function adoptStyles(root: ShadowRoot, name: string, css: string): void {
  let sheet = sheets.get(name);
  if (!sheet) {
    sheet = new CSSStyleSheet();
    sheet.replaceSync(css);
    sheets.set(name, sheet);
  }
  root.adoptedStyleSheets = [sheet];
}
