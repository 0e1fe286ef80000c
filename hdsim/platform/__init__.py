"""The hierarchy of clusters, nodes, processors and cores, and its files."""
