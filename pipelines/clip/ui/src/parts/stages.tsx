// The stages of a clip side by side: done, running, failed, without a result, or not started.
import { type State, StateIcon } from "@stillwake/ui/parts/state-badge.tsx";
import type { Clip, Stage } from "../../../src/model.ts";
import { badgeOf, STAGES } from "../labels.ts";

export function Stages({ clip }: { clip: Clip }) {
  const names = (Object.keys(STAGES) as Stage[]).filter((name) => name !== "asr" || clip.captions !== "none");
  const current = clip.stage === null ? -1 : names.indexOf(clip.stage);
  return (
    <ol className="stages">
      {names.map((name, index) => {
        const [state, label] = stageState(clip, name, index - current);
        return (
          <li key={name} className="state" data-state={state} aria-current={index === current ? "step" : undefined}>
            <StateIcon state={state} />
            {STAGES[name].name}
            <span className="hidden">, {label}</span>
          </li>
        );
      })}
    </ol>
  );
}

/** `distance`: how many stages it is after the current one. */
function stageState(clip: Clip, name: Stage, distance: number): [State, string] {
  if (name === "asr" && clip.result?.captions === "none") return ["cancelled", "without a result"];
  if (clip.state === "ready" || distance < 0) return ["completed", "done"];
  return distance === 0 ? [badgeOf(clip), clip.state] : ["queued", "not started"];
}
