"""Model cards, tables and comparisons of runs."""
