"""A Kubernetes-compatible API server for one machine: durable, watchable, loopback only."""
