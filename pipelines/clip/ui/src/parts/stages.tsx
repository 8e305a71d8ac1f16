// The stages of a clip side by side: done, running, failed or not reached.
import { type State, StateIcon } from "@stillwake/ui/parts/state-badge.tsx";
import type { Clip, Stage } from "../../../src/model.ts";
import { badgeOf, STAGES } from "../labels.ts";

export function Stages({ clip }: { clip: Clip }) {
  const names = (Object.keys(STAGES) as Stage[]).filter((name) => name !== "asr" || clip.captions !== "none");
  const current = clip.stage === null ? -1 : names.indexOf(clip.stage);
  return (
    <ol className="stages">
      {names.map((name, index) => {
        const isDone = clip.state === "ready" || index < current;
        const state: State = isDone ? "completed" : index === current ? badgeOf(clip) : "queued";
        return (
          <li key={name} className="state" data-state={state} aria-current={index === current ? "step" : undefined}>
            <StateIcon state={state} />
            {STAGES[name].name}
            <span className="hidden">
              {isDone ? ", done" : index === current ? `, ${clip.state}` : ", not started"}
            </span>
          </li>
        );
      })}
    </ol>
  );
}
