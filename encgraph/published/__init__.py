"""Published sizes of encoders as literals, one file a group of families; no torch."""
