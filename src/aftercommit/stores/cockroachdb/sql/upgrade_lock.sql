-- One process at a time changes tables, in one transaction.
SELECT name, (SELECT set_config(name, 'off', true) FROM pg_catalog.pg_settings WHERE name = 'autocommit_before_ddl')
FROM {schema_table}
FOR UPDATE
