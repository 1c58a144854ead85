"""The walk of an event, written once: coroutines that await only ports, under threads and under asyncio."""
