"""Which pods wait, which groups grow or could be created for them, by how many nodes, and within what limits."""
