// What an orchestrator says of what it does, for logs and alerts.

/** `level` "error" wants somebody to come. */
export interface OrchestratorEvent {
  kind: "decision" | "machine" | "trouble" | "provider" | "database";
  level: "info" | "warn" | "error";
  pool?: string;
  message: string;
  facts?: Record<string, unknown>;
}
