// A failure: its sentence first, then each cause with its code, its remedy and its stack.

import { escapeText } from "@stillwake/ui/format.ts";
import { type Failure, failureChain, failureRemedy, failureSentence } from "../../parts/failure-text.ts";
import { Fold } from "../../parts/fold.tsx";

/** RETRIES_EXHAUSTED adds nothing to the cause it wraps. */
function withoutWrapper(chain: Failure[]): Failure[] {
  return chain.length > 1 && chain[0]!.code === "RETRIES_EXHAUSTED" ? chain.slice(1) : chain;
}

/** The sentence and the codes, for a row of a table. */
export function FailureSummary({ failure }: { failure: Failure }) {
  const chain = failureChain(failure);
  const sentence = failureSentence(failure);
  const codes = withoutWrapper(chain).flatMap(({ code, name }) => code ?? (name === "Error" ? [] : (name ?? [])));
  const step = chain.find((cause) => cause.step)?.step;
  return (
    <div className="job-failure untrusted">
      <div className="job-failure-sentence">
        <Fold text={sentence} />
      </div>
      <div className="job-failure-codes">
        {codes.map((code) => (
          <code key={code} className="tag" data-tone="bad">
            {escapeText(code)}
          </code>
        ))}
        {step && <span className="soft small">in step {escapeText(step)}</span>}
      </div>
    </div>
  );
}

export function FailureDetails({ failure }: { failure: Failure }) {
  const chain = withoutWrapper(failureChain(failure));
  return (
    <ol className="job-failure-chain">
      {chain.map(({ name, message, code, sentence, stack, step }, index) => (
        <li key={index} className="untrusted">
          <div>
            {index > 0 && <span className="soft">because: </span>}
            <strong>
              <Fold text={sentence ?? message ?? name ?? "no reason given"} />
            </strong>
          </div>
          {sentence && message && sentence !== message && (
            <div className="small soft">
              <Fold text={message} />
            </div>
          )}
          <div className="job-failure-codes">
            {code && (
              <code className="tag" data-tone="bad">
                {escapeText(code)}
              </code>
            )}
            {name && name !== "Error" && <code className="tag">{escapeText(name)}</code>}
            {step && <span className="small soft">in step {escapeText(step)}</span>}
          </div>
          {code && failureRemedy(code) && <div className="small">{failureRemedy(code)}</div>}
          {stack && (
            <details>
              <summary className="small">Stack</summary>
              {/* biome-ignore lint/a11y/noNoninteractiveTabindex: a scrollable element must be reachable by keyboard. */}
              <pre className="payload" tabIndex={0}>
                {escapeText(stack)}
              </pre>
            </details>
          )}
        </li>
      ))}
    </ol>
  );
}
