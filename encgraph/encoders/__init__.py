"""Adapters that make transformers' encoders capturable, one file a family."""
