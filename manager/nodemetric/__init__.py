"""The NodeMetric's life beside its Node, and the policy delivered in its spec."""
