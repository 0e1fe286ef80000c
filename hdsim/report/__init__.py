"""Comparisons, interactive pages and figures of finished runs."""
