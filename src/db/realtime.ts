// Prepares sql/realtime.sql, which `stillwake migrate --realtime` applies: Supabase Realtime sends the feed of a
// tenant's jobs to users whose token names that tenant. Checks and inserts the names that an installation chooses.
import { InvalidInput } from "../errors.ts";

export interface RealtimeOptions {
  /** The publication that Realtime follows; created when missing. Default "supabase_realtime". */
  publication?: string;
  /** The token claim that names the tenant; dots select nested values, as in "app_metadata.tenant". Default "tenant". */
  claim?: string;
}

/** Returns the statements with the names inserted. */
export function realtimeSql(
  template: string,
  { publication = "supabase_realtime", claim = "tenant" }: RealtimeOptions,
): string {
  if (!/^[A-Za-z_][A-Za-z0-9_]{0,62}$/.test(publication)) {
    throw new InvalidInput(`${JSON.stringify(publication)} is not a valid publication name`, {
      field: "realtime.publication",
      remedy: "Use up to 63 letters, digits and _, not beginning with a digit",
    });
  }
  if (!/^[A-Za-z0-9_-]{1,63}(\.[A-Za-z0-9_-]{1,63}){0,4}$/.test(claim)) {
    throw new InvalidInput(`${JSON.stringify(claim)} is not a valid claim name`, {
      field: "realtime.claim",
      remedy: "Use letters, digits, _ and -, with dots between the parts of a nested name, as in app_metadata.tenant",
    });
  }
  if (/^(raw_)?user_meta_?data\b/.test(claim)) {
    throw new InvalidInput(`Users can change their ${claim} themselves`, {
      field: "realtime.claim",
      remedy: "Use a claim that only your server sets, such as app_metadata.tenant",
    });
  }
  return template.replaceAll(":publication", publication).replaceAll(":claim", `{${claim.replaceAll(".", ",")}}`);
}
