"""The event store in MySQL 8 and MariaDB."""
