"""What is made of finished runs: comparisons, interactive pages and figures."""
