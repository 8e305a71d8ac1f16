// What an orchestrator says of what it does, for logs and alerts.
import type { Plan } from "./plan.ts";

/** `level` "error" wants somebody to come. */
export interface OrchestratorEvent {
  kind: "decision" | "machine" | "trouble" | "provider" | "database";
  level: "info" | "warn" | "error";
  pool?: string;
  message: string;
  facts?: Record<string, unknown>;
}

/** What is done about it, for the line of a decision. */
export function actWords(action: Plan["actions"][number]): string {
  switch (action.do) {
    case "start":
      return `start ${action.burst ? "burst " : ""}machine ${action.slot}`;
    case "prepare":
      return `make machine ${action.slot}`;
    case "remove":
      return `remove ${action.machine.name} (${action.why})`;
    case "retire":
      return `end ${action.life.machine} (${action.why})`;
    case "repeat":
      return `ask again for ${action.life.machine}`;
    case "confirm":
      return `${action.life.machine} is there`;
    case "end":
      return `${action.life.machine} has ended`;
  }
}
