// The figures of a stage.
import type { ReactNode } from "react";

/** Without a value the text stands alone. */
export function Figure({ value, text }: { value?: string; text: string }) {
  return (
    <p className="figure">
      {value !== undefined && <b className="number">{value} </b>}
      <span className="soft">{text}</span>
    </p>
  );
}

export function StageFacts({ facts }: { facts: readonly (readonly [name: string, value: ReactNode])[] }) {
  return (
    <dl className="fact-columns">
      {facts.map(([name, value]) => (
        <div key={name}>
          <dt>{name}</dt>
          <dd className="number">{value}</dd>
        </div>
      ))}
    </dl>
  );
}
