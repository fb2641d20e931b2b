"""A Kubernetes-compatible API server for one machine: durable, watchable, loopback only.

It contains only the controllers without which objects would never disappear (owner references, namespaces, event
retention) or could not be evicted safely (PodDisruptionBudget status).
"""
