// What killed it: the sentence for people first, then each reason behind it, its code, what to do, and the stack for those who ask.
import type { nouns } from "../../api/nouns.ts";
import { inert } from "../../parts/words.ts";

type Failure = NonNullable<nouns.Job["failure"]>;

/** Codes that only say that a job ended; what it was lies behind. */
const WRAPS = new Set(["RETRIES_EXHAUSTED", "POISONED"]);

/** What to do, where the product knows. */
const remedies: Record<string, string> = {
  RUNNER_OOM: "Give its runner more memory, or let the step work in smaller pieces.",
  RUNNER_KILLED: "Something outside killed its runner, often the system for want of memory: look at the machine.",
  RUNNER_EXITED: "Its code ended the process: look for process.exit, and at the lines before.",
  LEASE_EXPIRED: "The machine was lost, cut off or frozen: look whether it still lives.",
  TIMEOUT: "An attempt took longer than the pipeline allows: raise its timeout, or split it into steps.",
  SILENT: "It said nothing for longer than the pipeline allows: let it log or tell its progress, or raise silence.",
  STEP_TIMEOUT: "The step took longer than its timeout.",
  STEP_SILENT: "The step said nothing for longer than it may.",
  UNCAUGHT: "An error that nobody caught: await every promise within the pipeline.",
  EXPIRED: "No worker took it in time: see whether one serves its pool, or give it more time.",
  POISONED: "It took its runner with it each time, so it is not tried again by itself. Mend the cause, then retry it.",
};

export const remedyOf = (code: string) => remedies[code];

/** The reasons of a failure, the outermost first. */
function chainOf(failure: Failure | null): Failure[] {
  const chain: Failure[] = [];
  for (let one: unknown = failure; typeof one === "object" && one !== null && chain.length < 8; ) {
    chain.push(one as Failure);
    one = (one as Failure).cause;
  }
  return chain;
}

/** For people. What wraps a reason without a sentence of its own is passed over. */
export function sentenceOf(failure: Failure | null): string {
  const chain = chainOf(failure);
  const said = chain.find(({ sentence }) => sentence)?.sentence;
  const first = chain.find(({ code }) => !code || !WRAPS.has(code)) ?? chain[0];
  return said ?? first?.message ?? first?.name ?? "no reason was given";
}

/** The code of what it was; the name of the error where it has none. */
export function codeOf(failure: Failure | null): string | undefined {
  const chain = chainOf(failure);
  const inner = chain.find(({ code }) => !code || !WRAPS.has(code));
  return inner ? (inner.code ?? (inner.name === "Error" ? undefined : inner.name)) : chain[0]?.code;
}

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
      <div className="job-failure-sentence">{inert(sentence)}</div>
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

export function FailureStory({ failure }: { failure: Failure }) {
  const chain = telling(chainOf(failure));
  return (
    <ol className="job-failure-chain">
      {chain.map(({ name, message, code, sentence, stack, step }, at) => (
        <li key={at} className="foreign">
          <div>
            {at > 0 && <span className="soft">because: </span>}
            <strong>{inert(sentence ?? message ?? name ?? "no reason was given")}</strong>
          </div>
          {sentence && message && sentence !== message && <div className="small soft">{inert(message)}</div>}
          <div className="job-failure-codes">
            {code && (
              <code className="tag" data-tone="bad">
                {inert(code)}
              </code>
            )}
            {name && name !== "Error" && <code className="tag">{inert(name)}</code>}
            {step && <span className="small soft">in step {inert(step)}</span>}
          </div>
          {code && remedies[code] && <div className="small">{remedies[code]}</div>}
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
