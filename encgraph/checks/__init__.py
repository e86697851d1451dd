"""Checks of an encoder: whether graphs can hold it, and whether what they return is right."""
