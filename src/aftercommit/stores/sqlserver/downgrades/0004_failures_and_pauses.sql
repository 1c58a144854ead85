-- No history of errors, and nothing is paused.
DROP TABLE IF EXISTS {failure_table};

DROP TABLE IF EXISTS {pause_table};
