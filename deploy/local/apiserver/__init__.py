"""A Kubernetes-compatible API server for one machine: durable, watchable, loopback only.

It holds no controllers of its own but those without which objects would never go away (owner references,
namespaces, event retention) or could not be evicted safely (PodDisruptionBudget status).
"""
