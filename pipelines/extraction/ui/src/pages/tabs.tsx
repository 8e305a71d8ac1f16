// The results of a project by kind, and its settings. The selected tab is in the URL.
import { type KeyboardEvent, useId } from "react";
import { useSearchParams } from "wouter";
import type { Project } from "../types.ts";
import { DependencyList, FindingList, VulnerabilityList } from "./findings.tsx";
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
  project: Project;
  /** The selected one. */
  extraction: string | undefined;
  /** Changes when there may be new results. */
  version: string;
}

export function Tabs(props: TabProps) {
  const id = useId();
  const [params, setParams] = useSearchParams();
  const selected = TABS.find(([name]) => name === params.get("tab"))?.[0] ?? "vulnerabilities";
  const select = (name: string) =>
    setParams(
      (before) => {
        const after = new URLSearchParams(before);
        if (name === "vulnerabilities") after.delete("tab");
        else after.set("tab", name);
        return after;
      },
      { replace: true },
    );
  const onKeyDown = (event: KeyboardEvent) => {
    const index = TABS.findIndex(([name]) => name === selected);
    const to = { ArrowRight: index + 1, ArrowLeft: index - 1 + TABS.length, Home: 0, End: TABS.length - 1 }[event.key];
    if (to === undefined) return;
    event.preventDefault();
    const [name] = TABS[to % TABS.length]!;
    select(name);
    document.getElementById(`${id}-${name}`)?.focus();
  };
  return (
    <section className="panel" aria-label="Results">
      <div className="tabs" role="tablist" aria-label="Results" onKeyDown={onKeyDown}>
        {TABS.map(([name, label]) => (
          <button
            key={name}
            id={`${id}-${name}`}
            type="button"
            role="tab"
            aria-selected={name === selected}
            aria-controls={`${id}-panel`}
            tabIndex={name === selected ? 0 : -1}
            onClick={() => select(name)}
          >
            {label}
          </button>
        ))}
      </div>
      <div id={`${id}-panel`} role="tabpanel" aria-labelledby={`${id}-${selected}`}>
        {props.extraction !== props.project.extraction?.id && !["reports", "settings"].includes(selected) && (
          <p className="note soft small">These are the latest results, not those of the earlier extraction above.</p>
        )}
        <TabContent name={selected} {...props} />
      </div>
    </section>
  );
}

function TabContent({ name, ...props }: TabProps & { name: (typeof TABS)[number][0] }) {
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
