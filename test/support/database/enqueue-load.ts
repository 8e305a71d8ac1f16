// Concurrent callers that enqueue during a fault. Each input is a unique number, so that the returned jobs can be
// compared with the table one by one.
import type pg from "pg";
import { expect } from "vitest";
import type { Stillwake } from "../../../src/index.ts";
import type { FaultProxy } from "../../../src/testing/index.ts";
import { recordFigure } from "../figures.ts";

let number = 1_000_000;

interface Load {
  /** The returned job by number. */
  acknowledged: Map<number, string>;
  stop(): Promise<void>;
  check(client: pg.Client, name: string): Promise<void>;
}

/** Callers enqueue numbers until they are stopped. */
export function startEnqueueLoad(stillwake: Stillwake, proxy: FaultProxy, callers: number, keyed: boolean): Load {
  const acknowledged = new Map<number, string>();
  const tenant = `load ${++number}`;
  let stopping = false;
  let repeated = 0;
  let longest = 0;
  void proxy.cutAfterServerReceives((sent) => {
    if (sent.includes('"again":true') && sent.includes(tenant)) repeated++;
    return false;
  });
  async function call(): Promise<void> {
    while (!stopping) {
      const n = ++number;
      const began = performance.now();
      const { id } = await stillwake.enqueue("report", n, { tenant, ...(keyed && { idempotencyKey: `key ${n}` }) });
      acknowledged.set(n, id);
      longest = Math.max(longest, performance.now() - began);
    }
  }
  const calls = Promise.all(Array.from({ length: callers }, call));
  return {
    acknowledged,
    async stop() {
      stopping = true;
      await calls;
    },
    async check(client, name) {
      const { rows } = await client.query(
        "select id, input::int as n from stillwake.jobs where tenant = $1 order by n",
        [tenant],
      );
      const duplicates = rows.length - new Set(rows.map(({ n }) => n)).size;
      const lost = [...acknowledged].filter(([n, id]) => !rows.some((row) => row.n === n && row.id === id)).length;
      expect({ lost, duplicates }).toEqual({ lost: 0, duplicates: 0 });
      expect(rows.map(({ n, id }) => [n, id])).toEqual([...acknowledged].sort(([a], [b]) => a - b));
      expect(repeated).toBeGreaterThan(0);
      recordFigure(`outage: ${name}: acknowledged`, acknowledged.size, "jobs");
      recordFigure(`outage: ${name}: unknown outcomes resolved`, repeated, "statements");
      recordFigure(`outage: ${name}: lost, duplicates`, lost + duplicates, "jobs");
      recordFigure(`outage: ${name}: longest stall`, longest, "ms");
    },
  };
}
