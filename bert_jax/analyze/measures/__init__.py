"""The mathematics of the analyses, on arrays."""
