// A failure in the words of the person who waits. What is thrown as Told is said as it is; everything else is an accident, whose own words are for us.
import { Fatal } from "stillwake";

export interface TellOptions {
  code: string;
  /** Another attempt would meet the same. */
  fatal?: boolean;
  cause?: unknown;
}

export class Told extends Error {
  override readonly name = "Told";
  readonly code: string;

  constructor(message: string, { code, cause }: TellOptions) {
    super(message, cause === undefined ? undefined : { cause });
    this.code = code;
  }
}

/** The error to throw: one that ends the job at once, or one that is tried again by its policy. */
export function tell(message: string, options: TellOptions): Told | Fatal {
  const { code, fatal, cause } = options;
  return fatal ? new Fatal(message, { code, ...(cause !== undefined && { cause }) }) : new Told(message, options);
}
