// Pools, and the machines and workers that serve them: what each is doing, and why not more.
import { useBudgets, useCosts, useMachines, usePools } from "../api/nouns.ts";
import { Command } from "../parts/copy.tsx";
import { pays } from "../parts/money.ts";
import { Asked, Empty, PageHead, Panel, Wrong } from "../parts/panel.tsx";
import "../look/pools.css";
import { monthOf, TenantBudgets } from "./pools/cost.tsx";
import { MachineTable } from "./pools/machines.tsx";
import { PoolPanel } from "./pools/pool.tsx";

export default function PoolsPage() {
  const pools = usePools();
  const machines = useMachines();
  const paying = pays(pools.data?.pools);
  const costs = useCosts(paying);
  const budgets = useBudgets(paying).data?.budgets ?? [];
  const tenants = budgets.filter(({ scope }) => scope === "tenant");
  const awake = machines.data?.machines;
  return (
    <>
      <PageHead title="Pools" note="Jobs, and the machines and workers that serve them" />
      <Asked of={pools}>
        {({ pools: all }) => {
          const strays = awake?.filter(({ pool }) => !all.some(({ name }) => name === pool)) ?? [];
          return (
            <>
              {machines.error && <Wrong error={machines.error} />}
              {all.length === 0 && <NoPools />}
              {all.map((pool) => (
                <PoolPanel
                  key={pool.name}
                  pool={pool}
                  machines={awake?.filter((one) => one.pool === pool.name)}
                  month={monthOf(costs.data, pool.name)}
                  budget={budgets.find(({ scope, name }) => scope === "pool" && name === pool.name)}
                />
              ))}
              {strays.length > 0 && (
                <Panel title="Workers of pools that no pipeline names" bare>
                  <MachineTable machines={strays} withPool />
                </Panel>
              )}
              {tenants.length > 0 && (
                <Panel title="Budgets of tenants" bare>
                  <TenantBudgets budgets={tenants} />
                </Panel>
              )}
            </>
          );
        }}
      </Asked>
    </>
  );
}

function NoPools() {
  return (
    <Panel title="No pool yet" bare>
      <Empty title="A pool is there as soon as a pipeline names it.">
        <p>A pipeline that names none is of the pool “default”. Start a worker that has one:</p>
        <Command>npx stillwake worker --pipelines ./pipelines</Command>
      </Empty>
    </Panel>
  );
}
