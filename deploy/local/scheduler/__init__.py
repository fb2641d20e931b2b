"""A small scheduler: filters nodes, prefers the least requested, binds, and says why a pod fits nowhere."""
