"""Readers of the data that only analyses use."""
