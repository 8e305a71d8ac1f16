// Checks a SARIF file against the standard and the requirements of GitHub.
import { expect } from "vitest";

interface Result {
  ruleId: string;
  ruleIndex: number;
  level: string;
  message: { text: string };
  partialFingerprints: Record<string, string>;
  locations: {
    physicalLocation: {
      artifactLocation: { uri: string; uriBaseId: string };
      region?: { startLine: number; endLine: number };
    };
  }[];
}

export interface SarifRun {
  tool: { driver: { rules: (Record<string, unknown> & { id: string; properties: Record<string, unknown> })[] } };
  results: Result[];
  automationDetails: { guid: string };
  invocations: { toolExecutionNotifications: { message: { text: string } }[] }[];
}

/** The parts of SARIF 2.1.0 that the report uses. */
export function expectSarif(text: string): SarifRun {
  const log = JSON.parse(text) as { runs: [SarifRun] };
  expect(log).toMatchObject({
    version: "2.1.0",
    runs: [{ tool: { driver: { name: expect.any(String) } }, results: expect.any(Array) }],
  });
  const [{ tool, results, automationDetails, invocations }] = log.runs;
  const { rules } = tool.driver;
  expect(new Set(rules.map(({ id }) => id)).size).toBe(rules.length);
  for (const rule of rules) {
    expect(rule).toMatchObject({
      shortDescription: { text: expect.stringMatching(/./) },
      defaultConfiguration: { level: expect.stringMatching(/^(error|warning|note)$/) },
    });
    expect(rule.properties["security-severity"] ?? "0.0").toMatch(/^\d+\.\d$/);
    if (rule.helpUri !== undefined) expect(rule.helpUri).toMatch(/^https?:\/\//);
  }
  for (const result of results) {
    expect(rules[result.ruleIndex]?.id).toBe(result.ruleId);
    expect(result.level).toMatch(/^(error|warning|note)$/);
    expect(result.message.text).not.toBe("");
    expect(Object.values(result.partialFingerprints)).toEqual([expect.stringMatching(/./)]);
    // GitHub rejects the whole file if a result has none.
    expect(result.locations.length).toBeGreaterThan(0);
    for (const { physicalLocation } of result.locations) {
      const { uri, uriBaseId } = physicalLocation.artifactLocation;
      expect(uriBaseId).toBe("SRCROOT");
      expect(uri).toMatch(/^[\w!~*'().%-]+(\/[\w!~*'().%-]+)*$/);
      expect(new URL(uri, "file:///root/").href).toMatch(/^file:\/\/\/root\/./);
      const { startLine = 0, endLine = startLine } = physicalLocation.region ?? {};
      expect(startLine).toBeGreaterThan(0);
      expect(endLine).toBeGreaterThanOrEqual(startLine);
    }
  }
  expect(automationDetails.guid).toMatch(/^[0-9a-f-]{36}$/);
  expect(invocations).toHaveLength(1);
  return log.runs[0];
}
