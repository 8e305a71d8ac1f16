// An HTTP server that steps of test pipelines report their effects to, as to an external system. It keeps the order, rejects fencing tokens
// lower than one it has seen for the job, and has gates at which steps wait until the test opens them. It closes with the test or the file that
// started it.
import http from "node:http";
import type { AddressInfo } from "node:net";
import { waitFor } from "../../../src/testing/index.ts";
import { cleanUp } from "../cleanup.ts";

interface StepReport {
  job: string;
  event: "begin" | "effect";
  step?: string;
  attempt?: number;
  epoch: string;
  pid: number;
  token?: string;
  /** performance.now() of the test. */
  at: number;
  /** Its epoch is lower than an earlier one of this job. */
  stale: boolean;
}

export interface StepObserver {
  url: string;
  reports: StepReport[];
  reportsOf(job: string): StepReport[];
  /** Waits for a matching report and returns it. */
  waitForReport(
    matches: (report: StepReport) => boolean,
    options?: { timeout?: number; from?: number },
  ): Promise<StepReport>;
  openGate(gate: string): void;
}

export async function startStepObserver(): Promise<StepObserver> {
  const reports: StepReport[] = [];
  const newest = new Map<string, bigint>();
  const gates = new Map<string, { open: boolean; waiting: http.ServerResponse[] }>();
  const gate = (name: string) => {
    const found = gates.get(name) ?? { open: false, waiting: [] };
    gates.set(name, found);
    return found;
  };
  const server = http.createServer((request, response) => {
    const name = /^\/gate\/(.+)/.exec(request.url ?? "")?.[1];
    if (name) {
      const { open, waiting } = gate(name);
      if (open) response.end("open");
      else waiting.push(response);
      return;
    }
    let body = "";
    request.on("data", (data) => (body += data));
    request.on("end", () => {
      const report = JSON.parse(body) as StepReport;
      const epoch = BigInt(report.epoch);
      const highest = newest.get(report.job) ?? 0n;
      reports.push({ ...report, at: performance.now(), stale: epoch < highest });
      if (epoch > highest) newest.set(report.job, epoch);
      response.writeHead(epoch < highest ? 409 : 200).end();
    });
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  cleanUp(async () => {
    server.closeAllConnections();
    await new Promise((resolve) => server.close(resolve));
  });
  return {
    url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`,
    reports: reports,
    reportsOf: (job) => reports.filter((report) => report.job === job),
    waitForReport: (matches, { timeout = 20_000, from = 0 } = {}) =>
      waitFor(() => reports.slice(from).find(matches), { timeout, what: "a step report" }),
    openGate(name) {
      const found = gate(name);
      found.open = true;
      for (const response of found.waiting.splice(0)) response.end("open");
    },
  };
}
