"""Show a run to people: one self-contained HTML file, and what it advises."""
