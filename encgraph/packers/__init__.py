"""How packing finds graphs and searches for the cheapest split."""
