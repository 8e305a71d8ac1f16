// Dumps a schema as text, for comparing two schemas. The schema's name and the dates in partition names are normalized,
// and partition bounds are omitted.
import type pg from "pg";

export async function dumpSchema(client: pg.ClientBase, schema: string): Promise<string> {
  const lines: string[] = [];
  for (const [heading, query] of Object.entries(sections)) {
    const { rows } = await client.query<{ line: string }>(query, [schema]);
    const texts = rows.map(({ line }) => normalize(line, schema));
    lines.push(`== ${heading}`, ...new Set(texts.sort()));
  }
  return lines.join("\n");
}

function normalize(line: string, schema: string): string {
  return line
    .replaceAll(new RegExp(`\\b${schema}(?=\\b|_(?:app|worker|reader|tenant)\\b)`, "g"), "SCHEMA")
    .replaceAll(/_\d{8}\b/g, "_WEEK");
}

const inSchema = "relnamespace = to_regnamespace($1)";

const sections: Record<string, string> = {
  schema: `select format('owned by %s, granted %s', pg_get_userbyid(nspowner), coalesce((
      select string_agg(format('%s to %s', a.privilege_type, coalesce(nullif(a.grantee, 0)::regrole::text, 'public')), ', ' order by 1) from aclexplode(nspacl) a
    ), 'nothing')) as line
    from pg_namespace where oid = to_regnamespace($1)`,
  relations: `select format('%s %s%s%s owned by %s', c.relkind, c.relname, coalesce(' with ' || c.reloptions::text, ''), coalesce(' by ' || pg_get_partkeydef(c.oid), ''), pg_get_userbyid(c.relowner)) as line
    from pg_class c where c.${inSchema} and c.relkind <> 'i' and c.relkind <> 'I'`,
  columns: `select format('%s %s %s %s%s default %s', c.relname, a.attnum, a.attname, format_type(a.atttypid, a.atttypmod), case when a.attnotnull then ' not null' end,
      coalesce(pg_get_expr(d.adbin, d.adrelid), 'none')) as line
    from pg_class c join pg_attribute a on a.attrelid = c.oid and a.attnum > 0 and not a.attisdropped
    left join pg_attrdef d on d.adrelid = c.oid and d.adnum = a.attnum
    where c.${inSchema} and c.relkind in ('r', 'p', 'v')`,
  constraints: `select format('%s %s %s', conrelid::regclass, conname, pg_get_constraintdef(oid)) as line from pg_constraint where connamespace = to_regnamespace($1)`,
  indexes: `select pg_get_indexdef(c.oid) as line from pg_class c where c.${inSchema} and c.relkind in ('i', 'I')`,
  views: `select format('%s as %s', c.relname, pg_get_viewdef(c.oid)) as line from pg_class c where c.${inSchema} and c.relkind = 'v'`,
  functions: `select pg_get_functiondef(oid) as line from pg_proc where pronamespace = to_regnamespace($1)`,
  "row security": `select format('%s: %s', c.relname, c.relrowsecurity) as line from pg_class c where c.${inSchema} and c.relkind in ('r', 'p')`,
  policies: `select format('%s %s for %s to %s using %s', tablename, policyname, cmd, roles, qual) as line from pg_policies where schemaname = $1`,
  "grants on columns": `select format('%s.%s: %s to %s', c.relname, t.attname, a.privilege_type, coalesce(nullif(a.grantee, 0)::regrole::text, 'public')) as line
    from pg_class c join pg_attribute t on t.attrelid = c.oid cross join aclexplode(t.attacl) a where c.${inSchema} and a.grantee <> c.relowner`,
  triggers: `select pg_get_triggerdef(t.oid) as line from pg_trigger t join pg_class c on c.oid = t.tgrelid where c.${inSchema} and not t.tgisinternal`,
  "grants on relations": `select format('%s: %s to %s', c.relname, a.privilege_type, coalesce(nullif(a.grantee, 0)::regrole::text, 'public')) as line
    from pg_class c cross join aclexplode(c.relacl) a where c.${inSchema} and a.grantee <> c.relowner`,
  "grants on functions": `select format('%s: %s to %s', p.oid::regprocedure, a.privilege_type, coalesce(nullif(a.grantee, 0)::regrole::text, 'public')) as line
    from pg_proc p cross join aclexplode(coalesce(p.proacl, acldefault('f', p.proowner))) a where p.pronamespace = to_regnamespace($1) and a.grantee <> p.proowner`,
};
