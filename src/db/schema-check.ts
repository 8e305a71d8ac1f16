// Validates the schema name and the schema version. Does not read files, so that a bundled client can use it.
import { InvalidInput, SchemaMismatch } from "../errors.ts";

/** The newest migration of this version; a test compares it with sql/migrations. */
export const NEWEST_MIGRATION = 17;

/** Words that cannot precede a dot unquoted: the keywords of Postgres except the unreserved ones, and those of PL/pgSQL. */
const reserved = new Set(
  `all analyse analyze and any array as asc asymmetric authorization begin between bigint binary bit boolean both by case cast char character
  check coalesce collate collation column concurrently constraint create cross current_catalog current_date current_role current_schema
  current_time current_timestamp current_user dec decimal declare default deferrable desc distinct do else end except execute exists extract
  false fetch float for foreach foreign freeze from full grant greatest group grouping having if ilike in initially inner inout int integer
  intersect interval into is isnull join json json_array json_arrayagg json_exists json_object json_objectagg json_query json_scalar
  json_serialize json_table json_value lateral leading least left like limit localtime localtimestamp loop merge_action national natural nchar
  none normalize not notnull null nullif numeric offset on only or order out outer overlaps overlay placing position precision primary real
  references returning right row select session_user setof similar smallint some strict substring symmetric system_user table tablesample then
  time timestamp to trailing treat trim true union unique user using values varchar variadic verbose when where while window with
  xmlattributes xmlconcat xmlelement xmlexists xmlforest xmlnamespaces xmlparse xmlpi xmlroot xmlserialize xmltable`.split(
    /\s+/,
  ),
);

export function schemaName(schema = "stillwake"): string {
  // Access of PUBLIC to the schema is revoked, so a schema shared with other objects is refused.
  if (!/^[a-z_][a-z0-9_]{0,39}$/.test(schema) || /^(pg_.*|public|information_schema)$/.test(schema)) {
    throw new InvalidInput(`${JSON.stringify(schema)} is not a valid schema name`, {
      field: "schema",
      remedy:
        "Use 1 to 40 lower-case letters, digits and _, not beginning with a digit or pg_, and a dedicated schema: not public",
    });
  }
  if (reserved.has(schema)) {
    throw new InvalidInput(`"${schema}" is not a valid schema name: the word is reserved in SQL`, {
      field: "schema",
      remedy: `Use another, such as "${schema}_jobs"`,
    });
  }
  return schema;
}

/** Throws when this client cannot use the database: the schema is too old, or has an unknown breaking migration. */
export async function checkSchema(
  query: (text: string) => Promise<{ rows: Record<string, unknown>[] }>,
  schema: string,
): Promise<void> {
  const { rows } = await query(`select newest, breaking from ${schema}.schema_state()`);
  const newest = Number(rows[0]?.newest);
  const breaking = Number(rows[0]?.breaking);
  if (breaking > NEWEST_MIGRATION) throw schemaTooNew(schema, breaking);
  if (newest < NEWEST_MIGRATION) {
    throw new SchemaMismatch(
      "SCHEMA_TOO_OLD",
      `Schema "${schema}" is at migration ${newest}, this version of stillwake needs ${NEWEST_MIGRATION}`,
      { remedy: "Run `stillwake migrate`" },
    );
  }
}

export function schemaTooNew(schema: string, found: number): SchemaMismatch {
  return new SchemaMismatch(
    "SCHEMA_TOO_NEW",
    `Schema "${schema}" has breaking migration ${found}, this version of stillwake knows only up to ${NEWEST_MIGRATION}`,
    { remedy: "Upgrade the stillwake package before using this database" },
  );
}
