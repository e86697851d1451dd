"""Packed variable-length attention, chosen by name."""
