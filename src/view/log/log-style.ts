// The style of the log panel: dark, like a terminal, on every page. Pages use custom properties and parts to change it.

export const LOG_STYLE = `
:host { display: block; height: var(--stillwake-log-height, 28rem); min-height: 8rem; container-type: inline-size; }
* { box-sizing: border-box; }
[hidden] { display: none !important; }
.panel {
  --ink: var(--stillwake-log-ink, #e4e4e7); --soft: var(--stillwake-log-ink-soft, #a1a1aa); --edge: var(--stillwake-log-line, #27272a);
  --info: var(--stillwake-info, #60a5fa); --success: var(--stillwake-success, #4ade80); --warning: var(--stillwake-warning, #facc15);
  --error: var(--stillwake-error, #f87171); --focus: var(--stillwake-accent, #2dd4bf);
  display: flex; flex-direction: column; height: 100%; overflow: hidden; position: relative; color-scheme: dark;
  background: var(--stillwake-log-background, #09090b); color: var(--ink);
  border: 1px solid var(--edge); border-radius: var(--stillwake-radius, 8px);
  font: 13px/20px var(--stillwake-font-mono, ui-monospace, SFMono-Regular, Menlo, Consolas, "DejaVu Sans Mono", "Liberation Mono", monospace);
}
.toolbar {
  display: flex; flex-wrap: wrap; align-items: center; gap: 4px 8px; padding: 8px; border-bottom: 1px solid var(--edge);
  font: 12px/16px var(--stillwake-font, system-ui, sans-serif); flex: none;
}
.refused {
  display: flex; flex-wrap: wrap; align-items: center; gap: 4px 12px; padding: 8px 12px; border-bottom: 1px solid var(--edge); color: var(--warning);
  font: 13px/20px var(--stillwake-font, system-ui, sans-serif); flex: none; overflow-wrap: anywhere;
}
.toolbar button, .toolbar select, .toolbar input, .jump, .again, .empty button {
  font: inherit; color: var(--ink); background: transparent; border: 1px solid var(--edge); border-radius: 6px; padding: 3px 8px; min-height: 24px;
}
.toolbar button:hover, .toolbar select:hover, .jump:hover, .again:hover { border-color: var(--soft); }
.toolbar button, .toolbar select, .jump, .again, .empty button { cursor: pointer; }
.toolbar select { background: var(--stillwake-log-background, #09090b); max-width: 16rem; }
.search { width: 10rem; }
.search::placeholder { color: var(--soft); opacity: 1; }
.levels { display: flex; gap: 4px; }
.acts { display: flex; gap: 4px; }
.space { flex: 1; }
.connection { color: var(--soft); }
.level .number { font-variant-numeric: tabular-nums; color: var(--soft); }
.level.info { --one: var(--info); } .level.success { --one: var(--success); } .level.warning { --one: var(--warning); } .level.error { --one: var(--error); }
.level[aria-pressed="true"] { border-color: color-mix(in srgb, var(--one) 55%, transparent); }
.level[aria-pressed="false"] { color: var(--soft); text-decoration: line-through; }
.wrap[aria-pressed="true"] { background: var(--edge); }
:is(button, select, input, .lines, .line):focus-visible { outline: 2px solid var(--focus); outline-offset: -2px; }
.toolbar :is(button, select, input):focus-visible, .jump:focus-visible { outline-offset: 1px; }
.lines { flex: 1; min-height: 0; overflow: auto; overscroll-behavior: contain; overflow-anchor: none; contain: strict; }
.canvas { position: relative; width: 100%; }
.line {
  position: absolute; top: 0; left: 0; width: 100%; padding: 1px 12px; display: grid; column-gap: 8px;
  grid-template-columns: auto 12px minmax(0, 1fr) auto; align-items: baseline; contain: layout style;
}
.line:hover { background: #ffffff0a; }
.line.more { cursor: pointer; }
.line.open { background: #ffffff0d; }
time { color: var(--soft); font-variant-numeric: tabular-nums; white-space: pre; min-width: 8ch; }
.mark { align-self: start; height: 20px; display: flex; align-items: center; }
.icon { width: 10px; height: 10px; overflow: visible; }
.icon path { fill: currentColor; stroke: none; }
.icon.success path, .icon.error path { fill: none; stroke: currentColor; stroke-width: 1.8; stroke-linecap: round; stroke-linejoin: round; }
.event .icon path { fill: none; stroke: currentColor; stroke-width: 1.4; }
.line.info .mark { color: var(--info); } .line.success .mark { color: var(--success); }
.line.warning .mark { color: var(--warning); } .line.error .mark { color: var(--error); }
.line.error .message { color: var(--error); }
.line.warning .message { color: var(--warning); }
.line.event .message, .line.gap .message { font-style: italic; }
.body { min-width: 0; }
.message { unicode-bidi: isolate; white-space: pre-wrap; overflow-wrap: anywhere; tab-size: 4; }
.badge {
  font: 12px/16px var(--stillwake-font, system-ui, sans-serif); font-variant-numeric: tabular-nums; color: var(--soft); border: 1px solid var(--edge);
  border-radius: 999px; padding: 0 6px; white-space: nowrap; margin-inline-start: 4px;
}
.step { color: var(--soft); font-size: 12px; unicode-bidi: isolate; margin-inline-start: 4px; white-space: nowrap; }
.toggle {
  font: 12px/16px var(--stillwake-font, system-ui, sans-serif); color: var(--soft); background: none; border: 0; padding: 0 4px; cursor: pointer; border-radius: 4px;
}
.toggle::after { content: " ▸"; }
.open .toggle::after { content: " ▾"; }
.line:hover .toggle { color: var(--ink); }
.details { grid-column: 3 / -1; padding: 4px 0 8px; cursor: auto; min-width: 0; }
.details pre {
  margin: 0; padding: 8px 12px; font: inherit; white-space: pre-wrap; overflow-wrap: anywhere; background: #ffffff0a; border-radius: 6px; color: var(--soft);
  unicode-bidi: isolate; max-height: 24rem; overflow: auto;
}
.details pre + pre { margin-top: 4px; }
.mask { font: inherit; color: var(--warning); background: none; border: 1px dashed var(--edge); border-radius: 4px; padding: 0 4px; cursor: pointer; }
.nowrap .message, .nowrap .body { white-space: pre; overflow-wrap: normal; }
.nowrap .line { width: max-content; min-width: 100%; }
.nowrap .line { grid-template-columns: auto 12px auto auto; justify-content: start; }
.empty {
  position: absolute; inset: 0; display: flex; flex-direction: column; gap: 12px; align-items: center; justify-content: center; text-align: center; padding: 24px;
  color: var(--soft); font: 13px/20px var(--stillwake-font, system-ui, sans-serif); pointer-events: none;
}
.empty button { pointer-events: auto; }
.viewport { position: relative; flex: 1; min-height: 0; display: flex; flex-direction: column; }
.jump {
  position: absolute; right: 20px; bottom: 12px; background: #18181b; border-color: var(--soft); border-radius: 999px; padding: 5px 12px;
  font: 12px/16px var(--stillwake-font, system-ui, sans-serif); box-shadow: 0 2px 12px #000a;
}
.unseen { position: absolute; width: 1px; height: 1px; overflow: hidden; clip-path: inset(50%); white-space: nowrap; }
@media (prefers-reduced-motion: no-preference) {
  .toolbar button, .jump { transition: border-color 120ms, background 120ms; }
}
@container (max-width: 36rem) {
  .panel { font-size: 12px; line-height: 18px; }
  /* The level icons have a separate margin, which no message can reach. */
  .line { display: block; padding: 2px 8px 2px 24px; }
  .mark { position: absolute; left: 8px; top: 2px; height: 18px; }
  .icon { width: 8px; height: 8px; }
  time { display: inline; font-size: 11px; min-width: 0; margin-right: 6px; }
  .body { display: inline; }
  .toggle { padding: 2px 4px; }
  .search { flex: 1; width: auto; min-width: 6rem; }
  .toolbar button, .toolbar select, .toolbar input { min-height: 32px; }
  .levels { width: 100%; }
  .levels .level { flex: 1; padding: 3px 4px; white-space: nowrap; }
  .space { display: none; }
}
`;
