// The HTML report of demo-report: one self-contained page with a curve of the readings, without scripts.
import { formatHour, formatMetres, predicted, type Reading } from "./tides.ts";

export interface Summary {
  readings: number;
  highest: Reading;
  lowest: Reading;
  /** Metres. */
  mean: number;
  outliers: { hour: number; centimetres: number }[];
}

const WIDTH = 960;
const HEIGHT = 240;

export function renderReport(
  harbour: string,
  readings: readonly Reading[],
  summary: Summary,
  forecast?: string,
): string {
  const { highest, lowest, mean, outliers } = summary;
  const rows = [
    ["Readings", String(readings.length)],
    ["Highest water", `${formatMetres(highest.metres)}, ${formatHour(highest.hour)}`],
    ["Lowest water", `${formatMetres(lowest.metres)}, ${formatHour(lowest.hour)}`],
    ["Mean", formatMetres(mean)],
    [
      "Outliers",
      outliers.map(({ hour, centimetres }) => `${formatHour(hour)} (${centimetres} cm)`).join("; ") || "none",
    ],
    ["Forecast", forecast ?? "missing: the weather service could not be reached"],
  ];
  return `<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>Tides of ${escapeHtml(harbour)}</title>
<style>
  :root { color-scheme: light dark; }
  body { font: 15px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem; }
  h1 { font-size: 1.25rem; }
  svg { width: 100%; height: auto; }
  .table { fill: none; stroke: light-dark(#94a3b8, #64748b); stroke-dasharray: 4 4; }
  .water { fill: none; stroke: light-dark(#0f766e, #2dd4bf); stroke-width: 1.5; }
  .outlier { fill: light-dark(#b45309, #fbbf24); }
  th { text-align: left; font-weight: 500; padding-right: 1.5rem; vertical-align: top; white-space: nowrap; }
</style>
<h1>Tides of ${escapeHtml(harbour)}</h1>
<svg viewBox="0 0 ${WIDTH} ${HEIGHT}" role="img" aria-label="Water level over ${readings.length} hours">
<path class="table" d="${curve(readings.map(({ hour }) => ({ hour, metres: predicted(hour) })))}"/>
<path class="water" d="${curve(readings)}"/>
${outliers.map(({ hour }) => dot(readings[hour]!, readings.length)).join("\n")}
</svg>
<table>
${rows.map(([name, value]) => `<tr><th>${name}<td>${escapeHtml(value!)}`).join("\n")}
</table>
</html>
`;
}

function curve(readings: readonly Reading[]): string {
  return readings
    .map((reading, index) => `${index === 0 ? "M" : "L"}${toPoint(reading, readings.length).join(" ")}`)
    .join("");
}

function dot(reading: Reading, count: number): string {
  const [x, y] = toPoint(reading, count);
  return `<circle class="outlier" cx="${x}" cy="${y}" r="4"/>`;
}

function toPoint({ hour, metres }: Reading, count: number): [x: number, y: number] {
  const round = (value: number) => Math.round(value * 10) / 10;
  return [round((hour / Math.max(1, count - 1)) * WIDTH), round(HEIGHT - (metres / 5) * HEIGHT)];
}

function escapeHtml(text: string): string {
  return text.replaceAll(/[&<>"']/g, (character) => `&#${character.charCodeAt(0)};`);
}
