"""The same comparisons on database servers: each measure makes a database of its own there, and drops it."""
