-- What is known of a slot beside the slot, and which server this is: places in one server's log mean nothing in another's.
SELECT (SELECT value FROM {schema_table} WHERE name = :name), system_identifier::text FROM pg_control_system()
