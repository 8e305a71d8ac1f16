// stillwake/orchestrator: machines that start when there is work and exit when there is none.
//
//   const pools = { scan: { provider: fly({ app: "scan-workers", … }), warm: 3, max: 5 } };
//   const orchestrator = await createOrchestrator({ url, pools }).start();
//   const sw = createStillwake({ url, poke: () => orchestrator.poke() });
import { Orchestrator, type OrchestratorOptions } from "./orchestrator.ts";

export { type Estimate, type Estimated, type EstimateLine, estimate } from "./cost-estimate.ts";
export type { OrchestratorEvent } from "./executor.ts";
export type { Orchestrator, OrchestratorOptions } from "./orchestrator.ts";
export { type Plan, type PlanInput, plan } from "./plan.ts";
export type { Price, PriceTable } from "./prices.ts";
export type {
  Clock,
  Exit,
  ListedMachine,
  MachineRequest,
  Provider,
  ProviderContext,
  ProviderErrorKind,
  ProviderFactory,
  ProviderFacts,
  StartedMachine,
} from "./provider.ts";
export { ProviderError } from "./provider.ts";
export { type CloudRunOptions, cloudRun } from "./providers/cloud-run/cloud-run.ts";
export { type FlyOptions, fly } from "./providers/fly/fly.ts";
export { type KubernetesOptions, kubernetes } from "./providers/kubernetes/kubernetes.ts";
export { type LocalOptions, local } from "./providers/local/local.ts";
export type { PoolOptions } from "./settings.ts";

export function createOrchestrator(options: OrchestratorOptions): Orchestrator {
  return new Orchestrator(options);
}
