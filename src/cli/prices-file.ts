// Price tables of a user's own: in a JSON file that STILLWAKE_PRICES or --prices names, or in the configuration itself.
import fs from "node:fs";
import { InvalidInput } from "../errors.ts";
import { checkPrices, type PriceTable } from "../orchestrator/prices.ts";

/** `file` goes before what the configuration says. Undefined when there are none. */
export function pricesFrom(file: string | undefined, configured: unknown): PriceTable | undefined {
  if (file === undefined) return configured === undefined ? undefined : checkPrices(configured);
  let text: string;
  try {
    text = fs.readFileSync(file, "utf8");
  } catch (error) {
    throw new InvalidInput(`The prices cannot be read from ${file}: ${(error as { code?: string }).code}`, {
      field: "prices",
      remedy: "Check --prices and STILLWAKE_PRICES",
    });
  }
  try {
    return checkPrices(JSON.parse(text));
  } catch (error) {
    if (!(error instanceof SyntaxError)) throw error;
    throw new InvalidInput(`${file} is not JSON: ${error.message}`, {
      field: "prices",
      remedy: "See docs/run/cost.md",
    });
  }
}
