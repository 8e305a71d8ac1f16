// What was found, one kind at a time, and the project's settings. The tab is part of the address.
import { go, placeWith, usePlace } from "@stillwake/kit/ui/place.tsx";
import { type KeyboardEvent, useId } from "react";
import type { OneProject } from "../nouns.ts";
import { DependencyList, FindingList, VulnerabilityList } from "./found.tsx";
import { ProjectSettings } from "./project-settings.tsx";
import { ReportList } from "./reports.tsx";

const TABS = [
  ["vulnerabilities", "Vulnerabilities"],
  ["findings", "Code and secrets"],
  ["dependencies", "Dependencies"],
  ["reports", "Reports"],
  ["settings", "Settings"],
] as const;

export interface TabProps {
  project: OneProject;
  /** The one that is looked at. */
  extraction: string | undefined;
  /** Another one when there may be something new. */
  version: string;
  onChanged: () => void;
}

export function Tabs(props: TabProps) {
  const id = useId();
  const place = usePlace();
  const asked = new URLSearchParams(place.split("?")[1]).get("tab");
  const chosen = TABS.find(([name]) => name === asked)?.[0] ?? "vulnerabilities";
  const choose = (name: string) =>
    go(placeWith(place, { tab: name === "vulnerabilities" ? null : name }), { replace: true });
  const walk = (event: KeyboardEvent) => {
    const at = TABS.findIndex(([name]) => name === chosen);
    const to = { ArrowRight: at + 1, ArrowLeft: at - 1 + TABS.length, Home: 0, End: TABS.length - 1 }[event.key];
    if (to === undefined) return;
    event.preventDefault();
    const [name] = TABS[to % TABS.length]!;
    choose(name);
    document.getElementById(`${id}-${name}`)?.focus();
  };
  return (
    <section className="panel" aria-label="What was found">
      <div className="tabs" role="tablist" aria-label="What was found" onKeyDown={walk}>
        {TABS.map(([name, label]) => (
          <button
            key={name}
            id={`${id}-${name}`}
            type="button"
            role="tab"
            aria-selected={name === chosen}
            aria-controls={`${id}-panel`}
            tabIndex={name === chosen ? 0 : -1}
            onClick={() => choose(name)}
          >
            {label}
          </button>
        ))}
      </div>
      <div id={`${id}-panel`} role="tabpanel" aria-labelledby={`${id}-${chosen}`}>
        {props.extraction !== props.project.extraction?.id && !["reports", "settings"].includes(chosen) && (
          <p className="note soft small">This is what was found last, not by the earlier extraction above.</p>
        )}
        <Chosen name={chosen} {...props} />
      </div>
    </section>
  );
}

function Chosen({ name, ...props }: TabProps & { name: (typeof TABS)[number][0] }) {
  switch (name) {
    case "vulnerabilities":
      return <VulnerabilityList {...props} />;
    case "findings":
      return <FindingList {...props} />;
    case "dependencies":
      return <DependencyList {...props} />;
    case "reports":
      return <ReportList {...props} />;
    case "settings":
      return <ProjectSettings {...props} />;
  }
}
