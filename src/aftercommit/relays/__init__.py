"""Relays: handlers that pass events on to a broker or another service, and are done when it has confirmed them."""
