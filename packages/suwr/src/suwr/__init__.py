"""Leakage-free local feature selection."""
