"""From a lane to an outcome in the table."""
