// Pools with their machines and workers: their state, and what limits them.

import { Empty, ErrorCallout, Loaded, PageHead, Panel } from "@stillwake/ui/parts/panel.tsx";
import { useEffect, useRef } from "react";
import { type api, useBudgets, useCosts, useEndedMachines, useMachines, usePools } from "../api/resources.ts";
import { Command } from "../parts/copy.tsx";
import { hasCosts } from "../parts/cost.ts";
import { isStarting } from "../parts/machine-text.ts";
import "../css/pools.css";
import { findMonth, TenantBudgets } from "./pools/cost.tsx";
import { MachineTable } from "./pools/machines.tsx";
import { PoolPanel } from "./pools/pool.tsx";

export default function PoolsPage() {
  const pools = usePools();
  const machines = useMachines(true, pools.data?.pools.some(isStarting));
  const ended = useEndedMachines(pools.data?.pools.some((pool) => pool.machines !== null) ?? false);
  useOnChange(startSignature(pools.data?.pools), machines.refetch);
  useOnChange(endSignature(pools.data?.pools, machines.data?.machines), ended.refetch);
  const withCosts = hasCosts(pools.data?.pools);
  const costs = useCosts(withCosts);
  const budgets = useBudgets(withCosts).data?.budgets ?? [];
  const tenantBudgets = budgets.filter(({ scope }) => scope === "tenant");
  const current = machines.data?.machines;
  return (
    <>
      <PageHead title="Pools" note="Machines and workers by pool" />
      <Loaded query={pools}>
        {({ pools: all }) => {
          const unlisted = current?.filter(({ pool }) => !all.some(({ name }) => name === pool)) ?? [];
          return (
            <>
              {machines.error && <ErrorCallout error={machines.error} />}
              {all.length === 0 && <NoPools />}
              {all.map((pool) => (
                <PoolPanel
                  key={pool.name}
                  pool={pool}
                  machines={current?.filter((machine) => machine.pool === pool.name)}
                  ended={ended.data?.machines.filter((machine) => machine.pool === pool.name && machine.end !== null)}
                  month={findMonth(costs.data, pool.name)}
                  budget={budgets.find(({ scope, name }) => scope === "pool" && name === pool.name)}
                />
              ))}
              {unlisted.length > 0 && (
                <Panel title="Workers of pools without a pipeline" bare>
                  <MachineTable machines={unlisted} withPool />
                </Panel>
              )}
              {tenantBudgets.length > 0 && (
                <Panel title="Tenant budgets" bare>
                  <TenantBudgets budgets={tenantBudgets} />
                </Panel>
              )}
            </>
          );
        }}
      </Loaded>
    </>
  );
}

/** Refetches machines when the pools show that one has started or ended, which may happen between two fetches. */
function useOnChange(signature: string | undefined, refetch: () => unknown): void {
  const before = useRef(signature);
  useEffect(() => {
    if (before.current !== undefined && before.current !== signature) void refetch();
    before.current = signature;
  }, [signature, refetch]);
}

const startSignature = (pools: readonly api.Pool[] | undefined) =>
  pools?.map(({ machines }) => machines && `${machines.now} ${machines.starting}`).join();

const endSignature = (pools: readonly api.Pool[] | undefined, machines: readonly api.Machine[] | undefined) =>
  pools &&
  machines &&
  [...pools.map(({ wastedStarts }) => wastedStarts), ...machines.map(({ machine }) => machine?.life)].join();

function NoPools() {
  return (
    <Panel title="No pools yet" bare>
      <Empty title="A pool appears here when a pipeline uses it">
        <p>Pipelines without a pool use the pool “default”. This command starts a worker with pipelines:</p>
        <Command>npx stillwake worker --pipelines ./pipelines</Command>
      </Empty>
    </Panel>
  );
}
