"""How many nodes, of which kind, at what cost."""
