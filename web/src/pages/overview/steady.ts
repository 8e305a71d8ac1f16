// The parts of the time move with every answer, and jobs at their edges go from one column to the next. A chart that is looked at stands still until
// something has ended, or until a column's worth of time has passed.
import { useRef } from "react";
import type { nouns } from "../../api/nouns.ts";

export function useSteady(stats: nouns.Stats | undefined): nouns.Stats | undefined {
  const shown = useRef<nouns.Stats>(undefined);
  if (stats && (shown.current === undefined || hasMoved(shown.current, stats))) shown.current = stats;
  return shown.current;
}

function hasMoved(before: nouns.Stats, now: nouns.Stats): boolean {
  if (before.spanMs !== now.spanMs || before.parts.length !== now.parts.length) return true;
  const { completed, failed, cancelled } = now.ended;
  const was = before.ended;
  if (completed !== was.completed || failed !== was.failed || cancelled !== was.cancelled) return true;
  const passed = Date.parse(now.parts[0]?.at ?? "") - Date.parse(before.parts[0]?.at ?? "");
  return passed >= now.spanMs / now.parts.length;
}
