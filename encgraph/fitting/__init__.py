"""How budgets are fitted: pose, dynamic programme, repack and repeat, judge."""
