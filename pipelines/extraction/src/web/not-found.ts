// What is not there, and what is somebody else's: the two are refused alike, so that nobody learns which it is.
import * as problems from "@stillwake/kit/web/problems";

export function notFound(what: string): problems.Refusal {
  return problems.notFound(what, "It was deleted, never was, or belongs to another organization");
}
