// Pools, and the machines and workers that serve them: what each is doing, and why not more.
import { useEffect, useRef } from "react";
import { type nouns, useBudgets, useCosts, useEndedMachines, useMachines, usePools } from "../api/nouns.ts";
import { Command } from "../parts/copy.tsx";
import { isStarting } from "../parts/machine-words.ts";
import { pays } from "../parts/money.ts";
import { Asked, Empty, PageHead, Panel, Wrong } from "../parts/panel.tsx";
import "../look/pools.css";
import { monthOf, TenantBudgets } from "./pools/cost.tsx";
import { MachineTable } from "./pools/machines.tsx";
import { PoolPanel } from "./pools/pool.tsx";

export default function PoolsPage() {
  const pools = usePools();
  const machines = useMachines(true, pools.data?.pools.some(isStarting));
  const ended = useEndedMachines(pools.data?.pools.some((pool) => pool.machines !== null) ?? false);
  useNews(comings(pools.data?.pools), machines.refetch);
  useNews(goings(pools.data?.pools, machines.data?.machines), ended.refetch);
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
                  ended={ended.data?.machines.filter((one) => one.pool === pool.name && one.end !== null)}
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

/** A machine may come and go between two looks at the machines: what is said of the pools tells when to look. */
function useNews(said: string | undefined, look: () => unknown): void {
  const before = useRef(said);
  useEffect(() => {
    if (before.current !== undefined && before.current !== said) void look();
    before.current = said;
  }, [said, look]);
}

const comings = (pools: readonly nouns.Pool[] | undefined) =>
  pools?.map(({ machines }) => machines && `${machines.now} ${machines.starting}`).join();

const goings = (pools: readonly nouns.Pool[] | undefined, machines: readonly nouns.Machine[] | undefined) =>
  pools &&
  machines &&
  [...pools.map(({ wastedStarts }) => wastedStarts), ...machines.map(({ machine }) => machine?.life)].join();

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
