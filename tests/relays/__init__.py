"""Relays to brokers and services."""
