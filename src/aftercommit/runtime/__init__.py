"""Threads and asyncio: the only rooms that know what waiting means."""
