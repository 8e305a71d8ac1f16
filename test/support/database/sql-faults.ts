// Injects faults inside the database: wraps SQL functions to raise a chosen SQLSTATE before or after their work, which
// is then rolled back. Counts are kept in sequences, because a rollback does not undo them.
import type pg from "pg";

export interface Faults {
  /** The next `most` calls of a function raise this. Returns a function that counts the raised errors. */
  once(verb: string, code: string, moment?: Moment, most?: number): Promise<void>;
  /** From now on each call raises one of these codes with this probability. */
  always(codes: string[], chance: number): Promise<void>;
  none(): Promise<void>;
  /** How often each code was raised since the last `none`. */
  raised(): Promise<Record<string, number>>;
}

type Moment = "before" | "after";

export async function installFaults(client: pg.Client, verbs: string[], codes: string[]): Promise<Faults> {
  await client.query(`
    create schema faults;
    create table faults.plan (verb text, moment text, code text not null, most bigint not null, chance float not null);
    create sequence faults.shots;
    ${codes.map((code) => `create sequence faults.raised_${code};`).join("\n")}
    create function faults.strike(p_verb text, p_moment text) returns void language plpgsql as $$
    declare
      v_code text;
    begin
      select code into v_code from faults.plan
      where coalesce(verb, p_verb) = p_verb and coalesce(moment, p_moment) = p_moment and random() < chance order by random() limit 1;
      if v_code is not null and nextval('faults.shots') <= (select max(most) from faults.plan) then
        perform nextval('faults.raised_' || v_code);
        raise exception 'injected %', v_code using errcode = v_code;
      end if;
    end $$;`);
  for (const verb of verbs) {
    const { rows } = await client.query(
      `select oid::regprocedure as name, pg_get_function_arguments(oid) as takes, pg_get_function_result(oid) as gives, pronargs as count,
        proretset as many
      from pg_proc where pronamespace = 'stillwake'::regnamespace and proname = $1`,
      [verb],
    );
    for (const row of rows) await client.query(wrapped(verb, row));
  }
  const plan = async (rows: [string | null, string | null, string, number, number][]) => {
    await client.query("delete from faults.plan");
    await client.query("alter sequence faults.shots restart");
    for (const row of rows) await client.query("insert into faults.plan values ($1, $2, $3, $4, $5)", row);
  };
  return {
    once: (verb, code, moment = "before", most = 1) => plan([[verb, moment, code, most, 1]]),
    always: (chosen, chance) => plan(chosen.map((code) => [null, null, code, 1_000_000_000, chance / chosen.length])),
    async none() {
      await plan([]);
      for (const code of codes) await client.query(`alter sequence faults.raised_${code} restart`);
    },
    async raised() {
      const counts: Record<string, number> = {};
      for (const code of codes) {
        const { rows } = await client.query(
          `select case when is_called then last_value else 0 end as n from faults.raised_${code}`,
        );
        counts[code] = Number(rows[0].n);
      }
      return counts;
    },
  };
}

interface Verb {
  name: string;
  takes: string;
  gives: string;
  count: number;
  many: boolean;
}

function wrapped(verb: string, { name, takes, gives, count, many }: Verb): string {
  const call = `stillwake.real_${verb}(${Array.from({ length: count }, (_, n) => `$${n + 1}`).join(", ")})`;
  const after = `perform faults.strike('${verb}', 'after');`;
  let body = `v_answer := ${call}; ${after} return v_answer;`;
  if (many) body = `return query select * from ${call}; ${after}`;
  else if (gives === "void") body = `perform ${call}; ${after}`;
  return `
    alter function ${name} rename to real_${verb};
    create function stillwake.${verb}(${takes}) returns ${gives} language plpgsql security definer as $$
    ${many || gives === "void" ? "" : `declare v_answer ${gives};`}
    begin
      perform faults.strike('${verb}', 'before');
      ${body}
    end $$;`;
}
