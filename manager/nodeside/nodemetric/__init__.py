"""The lifecycle of NodeMetrics, which follow their Nodes, and the policy in their spec."""
