"""Relays beside the clients of their brokers."""
