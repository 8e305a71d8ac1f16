// The machines of a scene: lives that the verbs of an orchestrator have written, without one and without a provider.
import { pass, type Stage } from "./dashboard-server.ts";

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

/** Three machines are kept stopped for repositories, two more may be made. */
export async function furnishMachines({ sql }: Stage, pool = "scan"): Promise<void> {
  await sql.query("select stillwake.fleet()");
  await sql.query("update stillwake.fleet set id = '7c1d20ab'");
  await sql.query("select stillwake.set_machines($1, $2)", [pool, JSON.stringify(SCAN)]);
}

export interface SceneMachine {
  life: string;
  machine: string;
}

/** Asked for, and up if it arrives. */
export async function startMachine(
  { sql }: Stage,
  { pool = "scan", slot, arrives = true }: { pool?: string; slot: number; arrives?: boolean },
): Promise<SceneMachine> {
  const machine = `sw-7c1d20ab-${pool}-m${slot}`;
  const life = {
    ...SCAN,
    slot,
    machine,
    burst: slot > SCAN.warm,
    by: "office-1",
    why: "1 job waits, there is room for 0",
  };
  const { rows } = await sql.query("select life, machine from stillwake.reserve_machine($1, $2, $3)", [
    pool,
    SCAN.max,
    JSON.stringify(life),
  ]);
  const made = rows[0] as SceneMachine;
  await sql.query("select stillwake.machine_started($1, $2)", [made.life, `48e1${slot}`]);
  if (arrives) await sql.query("select stillwake.machine_arrived($1, $2, 1)", [made.machine, pool]);
  return made;
}

/** With a way to end; without one it has left because it had nothing to do. */
export async function endMachine({ sql }: Stage, { life, machine }: SceneMachine, exit?: object): Promise<void> {
  if (!exit) await sql.query("select stillwake.machine_leaves($1, 'scan', 'idle')", [machine]);
  await sql.query("select stillwake.machine_ended($1, $2)", [life, JSON.stringify(exit ?? { code: 0 })]);
}

/** Some that have ended, each in its way. */
export async function pastMachines(stage: Stage): Promise<void> {
  const late = await startMachine(stage, { slot: 1, arrives: false });
  await pass(stage, 120_000);
  await endMachine(stage, late, { reason: "its worker never came" });
  const small = await startMachine(stage, { slot: 2 });
  await pass(stage, 40_000);
  await endMachine(stage, small, { oom: true, memory: "64 GB", code: 137 });
  const plain = await startMachine(stage, { slot: 4 });
  await pass(stage, 70_000);
  await endMachine(stage, plain);
}
