"""The per-node agent: samples usage each second, predicts the node's peak, reports it in a NodeMetric."""
