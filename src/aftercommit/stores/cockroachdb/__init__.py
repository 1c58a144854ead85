"""Events in CockroachDB: PostgreSQL's store without what it lacks. No server of it has run it yet."""
