"""Events in TiDB: MySQL's store in plainer statements. No server of it has run them yet."""
