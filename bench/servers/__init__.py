"""The same comparisons on database servers: each run makes a database of its own there, and drops it."""
