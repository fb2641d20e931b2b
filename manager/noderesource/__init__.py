"""How much of a node is on offer to Mid, why, and when the Node is told: pure functions of what the cluster says."""
