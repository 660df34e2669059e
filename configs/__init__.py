"""Recipes: each file has a function `get_config`; base.py lists every key."""
