"""Plates for directed evolution."""
