"""Events in Redis or Valkey: one Lua script for each operation, which the server runs as a whole."""
