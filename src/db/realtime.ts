// What `stillwake migrate --realtime` adds: Supabase Realtime shows the feed of a tenant's jobs to those whose token names that tenant. The SQL is sql/realtime.sql; here the
// names that an installation chooses are checked and put in.
import { InvalidInput } from "../errors.ts";

export interface RealtimeOptions {
  /** Made when it is missing. Default "supabase_realtime", the one that Realtime follows. */
  publication?: string;
  /** The claim of a signed-in user's token that names the tenant; dots lead inwards, as in "app_metadata.tenant". Default "tenant". */
  claim?: string;
}

/** The statements with the names in their places. */
export function realtimeSql(
  template: string,
  { publication = "supabase_realtime", claim = "tenant" }: RealtimeOptions,
): string {
  if (!/^[A-Za-z_][A-Za-z0-9_]{0,62}$/.test(publication)) {
    throw new InvalidInput(`${JSON.stringify(publication)} cannot name a publication`, {
      field: "realtime.publication",
      remedy: "Use up to 63 letters, digits and _, not beginning with a digit",
    });
  }
  if (!/^[A-Za-z0-9_-]{1,63}(\.[A-Za-z0-9_-]{1,63}){0,4}$/.test(claim)) {
    throw new InvalidInput(`${JSON.stringify(claim)} cannot name a claim`, {
      field: "realtime.claim",
      remedy: "Use letters, digits, _ and -, with dots between where it is nested, as in app_metadata.tenant",
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
