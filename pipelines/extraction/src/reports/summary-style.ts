// Styles of summary.html: light, dark and print.
export const STYLE = `
:root { --paper: #fbfbfa; --raised: #fff; --ink: #1b1b1f; --quiet: #62626b; --line: #e3e3e1; --accent: #1f5fbf;
  --critical: #a3174a; --high: #c2410c; --medium: #9a6a00; --low: #2f6f9f; --unknown: #6b6b74; --notice: #fdf3d7; --notice-line: #e2c36b; }
@media (prefers-color-scheme: dark) {
  :root { --paper: #131316; --raised: #1b1b1f; --ink: #ececee; --quiet: #a0a0aa; --line: #2e2e34; --accent: #8ab4f8;
    --critical: #ff7aa2; --high: #ff9563; --medium: #e6b84f; --low: #7fbbe6; --unknown: #a0a0aa; --notice: #2b2617; --notice-line: #6d5a24; }
}
* { box-sizing: border-box; }
body { margin: 0; background: var(--paper); color: var(--ink); font: 15px/1.5 system-ui, -apple-system, "Segoe UI", Roboto, sans-serif; }
main, footer { max-width: 1080px; margin: 0 auto; padding: 0 24px; }
main { padding-top: 40px; }
footer { padding-top: 24px; padding-bottom: 48px; color: var(--quiet); font-size: 13px; }
h1 { margin: 0 0 12px; font-size: 28px; line-height: 1.2; letter-spacing: -0.01em; overflow-wrap: anywhere; }
h2 { margin: 0; font-size: 15px; font-weight: 600; }
p { margin: 0; }
code { font: 0.92em ui-monospace, SFMono-Regular, Menlo, Consolas, monospace; overflow-wrap: anywhere; }
a { color: var(--accent); }
abbr { text-decoration: none; }
.kicker, .quiet, dt { color: var(--quiet); }
.quiet { font-weight: 400; }
.kicker { font-size: 13px; margin-bottom: 4px; }
dl { display: flex; flex-wrap: wrap; gap: 4px 24px; margin: 0; font-size: 13px; }
dl div { display: flex; gap: 8px; min-width: 0; }
dd { margin: 0; min-width: 0; overflow-wrap: anywhere; }
.notice { margin-top: 16px; padding: 10px 14px; background: var(--notice); border: 1px solid var(--notice-line); border-radius: 8px; }
.tiles { display: grid; grid-template-columns: repeat(auto-fit, minmax(220px, 1fr)); gap: 12px; margin: 28px 0 8px; }
.tile { background: var(--raised); border: 1px solid var(--line); border-radius: 10px; padding: 16px; font-size: 13px; }
.tile h2 { font-size: 13px; color: var(--quiet); font-weight: 500; }
.number { font-size: 32px; line-height: 1.2; font-weight: 600; font-variant-numeric: tabular-nums; letter-spacing: -0.02em; }
.bar { display: flex; gap: 2px; height: 6px; margin: 8px 0; border-radius: 3px; overflow: hidden; }
.bar span { min-width: 4px; background: var(--tone); }
.counts { display: flex; flex-wrap: wrap; gap: 2px 12px; margin: 0 0 4px; padding: 0; list-style: none; }
.dot { display: inline-block; width: 8px; height: 8px; margin-right: 6px; border-radius: 50%; background: var(--tone); }
.critical { --tone: var(--critical); } .high { --tone: var(--high); } .medium { --tone: var(--medium); } .low { --tone: var(--low); } .unknown { --tone: var(--unknown); }
main > section { margin-top: 36px; }
main > section > h2 { font-size: 18px; margin-bottom: 10px; }
.scroll { overflow-x: auto; }
.scroll:focus-visible { outline: 2px solid var(--accent); outline-offset: 2px; }
table { width: 100%; border-collapse: collapse; font-size: 14px; }
th { text-align: left; font-weight: 500; font-size: 13px; color: var(--quiet); padding: 6px 16px 6px 0; border-bottom: 1px solid var(--line); white-space: nowrap; }
td { vertical-align: top; padding: 10px 16px 10px 0; border-bottom: 1px solid var(--line); }
th:last-child, td:last-child { padding-right: 0; }
td p { font-size: 13px; margin-top: 2px; }
td.wide { min-width: 280px; overflow-wrap: anywhere; }
td.place { min-width: 160px; }
.right, th:nth-child(5) { text-align: right; white-space: nowrap; font-variant-numeric: tabular-nums; }
.badge { display: inline-block; min-width: 68px; padding: 1px 8px; border: 1px solid var(--tone); border-radius: 99px; color: var(--tone); font-size: 12px; text-align: center; }
.score { display: block; margin-top: 2px; font-size: 13px; text-align: center; }
.mark { display: inline-block; padding: 0 7px; border-radius: 99px; background: var(--line); font-size: 12px; white-space: nowrap; }
.mark.kev { background: var(--critical); color: var(--paper); }
.mark.faint { color: var(--quiet); }
@media print {
  :root { --paper: #fff; --raised: #fff; --ink: #000; --quiet: #555; --line: #ccc; --notice: #fff;
    --critical: #a3174a; --high: #c2410c; --medium: #9a6a00; --low: #2f6f9f; --unknown: #6b6b74; --accent: #000; }
  body { font-size: 11px; } main, footer { max-width: none; padding-left: 0; padding-right: 0; } main { padding-top: 0; }
  .scroll { overflow: visible; } tr, .tile { break-inside: avoid; } thead { display: table-header-group; }
  .bar span, .dot, .mark { print-color-adjust: exact; -webkit-print-color-adjust: exact; }
}
`;
