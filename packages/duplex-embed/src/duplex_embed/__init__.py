"""Placeholder of the names."""
