"""Webhooks, through httpx: signed by the rules of Standard Webhooks, and kept away from private networks."""
