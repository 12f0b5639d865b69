"""Measures of the store."""
