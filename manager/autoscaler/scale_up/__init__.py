"""Which groups grow, by how many nodes, and within what limits."""
