"""Events in PostgreSQL, over psycopg or asyncpg."""
