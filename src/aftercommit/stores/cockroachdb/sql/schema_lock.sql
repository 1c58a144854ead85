-- All or none of a new schema: newer releases would commit before each change of a table. There is nothing to lock; of two
-- who make the tables one is told that they are there, and begins again.
SELECT set_config(name, 'off', true) FROM pg_catalog.pg_settings WHERE name = 'autocommit_before_ddl'
