// What killed it: the sentence for people first, then each reason behind it, its code, what to do, and the stack for those who ask.
import { chainOf, type Failure, remedyOf, sentenceOf } from "../../parts/failure-words.ts";
import { Fold } from "../../parts/fold.tsx";
import { inert } from "../../parts/words.ts";

/** That all attempts were used up says nothing that the reason behind it does not say better. */
function telling(chain: Failure[]): Failure[] {
  return chain.length > 1 && chain[0]!.code === "RETRIES_EXHAUSTED" ? chain.slice(1) : chain;
}

/** The same failure in a narrow place: sentence, codes, and the rest folded. */
export function FailureWords({ failure }: { failure: Failure }) {
  const chain = chainOf(failure);
  const sentence = sentenceOf(failure);
  const codes = telling(chain).flatMap(({ code, name }) => code ?? (name === "Error" ? [] : (name ?? [])));
  const step = chain.find((one) => one.step)?.step;
  return (
    <div className="job-failure foreign">
      <div className="job-failure-sentence">
        <Fold text={sentence} />
      </div>
      <div className="job-failure-codes">
        {codes.map((code) => (
          <code key={code} className="tag" data-tone="bad">
            {inert(code)}
          </code>
        ))}
        {step && <span className="soft small">in step {inert(step)}</span>}
      </div>
    </div>
  );
}

export function FailureDetails({ failure }: { failure: Failure }) {
  const chain = telling(chainOf(failure));
  return (
    <ol className="job-failure-chain">
      {chain.map(({ name, message, code, sentence, stack, step }, at) => (
        <li key={at} className="foreign">
          <div>
            {at > 0 && <span className="soft">because: </span>}
            <strong>
              <Fold text={sentence ?? message ?? name ?? "no reason was given"} />
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
                {inert(code)}
              </code>
            )}
            {name && name !== "Error" && <code className="tag">{inert(name)}</code>}
            {step && <span className="small soft">in step {inert(step)}</span>}
          </div>
          {code && remedyOf(code) && <div className="small">{remedyOf(code)}</div>}
          {stack && (
            <details>
              <summary className="small">Stack</summary>
              {/* biome-ignore lint/a11y/noNoninteractiveTabindex: what scrolls must be reachable by keyboard. */}
              <pre className="payload" tabIndex={0}>
                {inert(stack)}
              </pre>
            </details>
          )}
        </li>
      ))}
    </ol>
  );
}
