// Whether commits are acknowledged: with a synchronous standby that is away, Postgres answers reads as always while
// every commit waits, without an error and without a limit.

/** A commit that has waited this long is taken for one that waits until the standby is back. */
const WAITING_SECONDS = 2;

export interface Replication {
  /** `synchronous_standby_names`, empty without a synchronous standby or where commits do not wait for one. */
  names: string;
  /** How many standbys a commit waits for. */
  required: number;
  /** Connected standbys, and those of them that count as synchronous; null when this user may not see them. */
  standbys: number | null;
  synchronous: number | null;
  /** The name and the lag in bytes of the asynchronous standby that is behind the most. */
  asynchronous: string | null;
  lagBytes: number;
  /** Commits that wait for a standby: those of this user, or all where it may see them. */
  waiting: number;
}

type Query = (text: string) => Promise<Record<string, string | null>[]>;

export async function readReplication(query: Query): Promise<Replication> {
  const [row] = await query(
    `select case when current_setting('synchronous_commit') in ('off', 'local') then ''
        else current_setting('synchronous_standby_names') end as names,
      pg_has_role(current_user, 'pg_read_all_stats', 'usage')::text as visible,
      (select count(*) from pg_stat_replication)::text as standbys,
      (select count(*) from pg_stat_replication where sync_state in ('sync', 'quorum'))::text as synchronous,
      a.name, a.lag::text as lag,
      (select count(*) from pg_stat_activity where wait_event = 'SyncRep' and datname = current_database()
        and state_change < clock_timestamp() - interval '${WAITING_SECONDS} seconds')::text as waiting
    from (select 1) one left join lateral (
      select coalesce(nullif(application_name, ''), client_addr::text, 'a standby') as name,
        case when not pg_is_in_recovery() then pg_current_wal_lsn() - coalesce(replay_lsn, flush_lsn) end as lag
      from pg_stat_replication where sync_state in ('async', 'potential') order by 2 desc nulls first limit 1) a on true`,
  );
  const { names, visible, standbys, synchronous, name, lag, waiting } = row!;
  const isVisible = visible === "true";
  return {
    names: names!,
    required: names ? Number(/^\s*(?:(?:any|first)\s+)?(\d+)\s*\(/i.exec(names)?.[1] ?? 1) : 0,
    standbys: isVisible ? Number(standbys) : null,
    synchronous: isVisible ? Number(synchronous) : null,
    asynchronous: name ?? null,
    lagBytes: Number(lag ?? 0),
    waiting: Number(waiting),
  };
}

/** Why no commit is acknowledged now; undefined when they are. */
export function whyCommitsWait({ names, required, synchronous, waiting }: Replication): string | undefined {
  if (!names) return undefined;
  if (synchronous !== null && synchronous < required)
    return `${synchronous} of ${required} synchronous standbys (${names}) ${synchronous === 1 ? "is" : "are"} connected: every commit waits`;
  if (waiting > 0) return `${waiting} commits wait for a synchronous standby (${names}) that is away`;
  return undefined;
}

export const COMMITS_WAIT_REMEDY =
  "Bring the synchronous standby back, or set synchronous_standby_names to one that is connected";
