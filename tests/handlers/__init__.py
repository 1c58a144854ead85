"""Declared handlers, from declaration to outcome."""
