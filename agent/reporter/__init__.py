"""Reports through the NodeMetric's status what this node uses and can lend."""
