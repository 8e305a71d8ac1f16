// Where a secret stands and what kind it is: all that leaves the engines.
import type { Match } from "../analysis/collect.ts";

export interface Place {
  /** The name of the rule, as its engine has it. */
  rule: string;
  path: string;
  line: number;
  endLine: number;
}

/** It is not known whether the key still opens anything: nobody asks the other side. So there is one severity for all. */
export function placeOf({ rule, path, line, endLine }: Place): Match {
  return {
    rule: ruleName(rule),
    severity: "high",
    path,
    line,
    endLine,
    message: `Possible secret: ${inWords(rule)}`,
    cwe: ["CWE-798"],
  };
}

/** Names of rules are words; anything else is not a name. */
function ruleName(rule: string): string {
  return rule.replace(/[^\w./@:-]+/g, "-").slice(0, 100) || "secret";
}

/** "aws-access-token" and "AWSSecretAccessKey" alike. */
function inWords(rule: string): string {
  return ruleName(rule.slice(rule.lastIndexOf("/") + 1))
    .replace(/([a-z\d])([A-Z])/g, "$1 $2")
    .replace(/([A-Z]+)([A-Z][a-z])/g, "$1 $2")
    .replace(/[-_.:]+/g, " ")
    .trim();
}
