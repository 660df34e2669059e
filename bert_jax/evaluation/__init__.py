"""Metrics, reports and comparisons of runs."""
