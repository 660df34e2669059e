"""Inference: trained models on raw text."""
