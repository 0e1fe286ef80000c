"""Training of the order ``learned``: its windows, its evolution, and what both are made from."""
