// What a stage comes to: one figure that counts, and a few beside it.
import type { ReactNode } from "react";

/** Without a value: what stands in the place of one. */
export function Figure({ value, words }: { value?: string; words: string }) {
  return (
    <p className="figure">
      {value !== undefined && <b className="number">{value} </b>}
      <span className="soft">{words}</span>
    </p>
  );
}

export function StageFacts({ facts }: { facts: readonly (readonly [name: string, value: ReactNode])[] }) {
  return (
    <dl className="facts">
      {facts.map(([name, value]) => (
        <div key={name}>
          <dt>{name}</dt>
          <dd className="number">{value}</dd>
        </div>
      ))}
    </dl>
  );
}
