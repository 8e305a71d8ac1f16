// Machines of a scenario, written through the SQL functions of the orchestrator, without an orchestrator or a provider.
import { type Dashboard, passTime } from "./dashboard-server.ts";

const SCAN = {
  provider: "fly",
  size: "performance-8x",
  region: "iad",
  slots: 1,
  warm: 3,
  max: 5,
  burst: 2,
  idle_exit_ms: 60_000,
  price: 0.00021302,
  prices: "fly 2026-10-01",
  currency: "USD",
  disk: 2,
  idle_price: 0.000000116,
};

/** Three machines are kept stopped, two more may be created. */
export async function setUpMachines({ sql }: Dashboard, pool = "scan"): Promise<void> {
  await sql.query("select stillwake.fleet()");
  await sql.query("update stillwake.fleet set id = '7c1d20ab'");
  await sql.query("select stillwake.set_machines($1, $2)", [pool, JSON.stringify(SCAN)]);
}

export interface ScenarioMachine {
  life: string;
  machine: string;
}

/** Requested and started; its worker registers unless `registers` is false. */
export async function startMachine(
  { sql }: Dashboard,
  { pool = "scan", ordinal, registers = true }: { pool?: string; ordinal: number; registers?: boolean },
): Promise<ScenarioMachine> {
  const machine = `sw-7c1d20ab-${pool}-m${ordinal}`;
  const life = {
    ...SCAN,
    ordinal,
    machine,
    burst: ordinal > SCAN.warm,
    by: "office-1",
    why: "1 job is waiting, room for 0",
  };
  const { rows } = await sql.query("select life, machine from stillwake.reserve_machine($1, $2, $3)", [
    pool,
    SCAN.max,
    JSON.stringify(life),
  ]);
  const reserved = rows[0] as ScenarioMachine;
  await sql.query("select stillwake.machine_started($1, $2)", [reserved.life, `48e1${ordinal}`]);
  if (registers) await sql.query("select stillwake.machine_registered($1, $2, 1)", [reserved.machine, pool]);
  return reserved;
}

/** Without `exit` it has stopped because it was idle. */
export async function endMachine({ sql }: Dashboard, { life, machine }: ScenarioMachine, exit?: object): Promise<void> {
  if (!exit) await sql.query("select stillwake.machine_leaves($1, 'scan', 'idle')", [machine]);
  await sql.query("select stillwake.machine_ended($1, $2)", [life, JSON.stringify(exit ?? { code: 0 })]);
}

/** Machines with different ends: never registered, out of memory, idle. */
export async function addEndedMachines(dashboard: Dashboard): Promise<void> {
  const late = await startMachine(dashboard, { ordinal: 1, registers: false });
  await passTime(dashboard, 120_000);
  await endMachine(dashboard, late, { reason: "its worker never registered" });
  const small = await startMachine(dashboard, { ordinal: 2 });
  await passTime(dashboard, 40_000);
  await endMachine(dashboard, small, { oom: true, memory: "64 GB", code: 137 });
  const plain = await startMachine(dashboard, { ordinal: 4 });
  await passTime(dashboard, 70_000);
  await endMachine(dashboard, plain);
}
