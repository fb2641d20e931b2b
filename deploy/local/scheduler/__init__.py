"""A small scheduler: filters nodes, prefers the least requested one, binds, and reports why a pod fits nowhere."""
