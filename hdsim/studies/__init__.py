"""Studies: commands, comparisons and figures that answer one question, with the numbers that are expected of them."""
