"""Advice for schedulers: nodes that a pod should avoid, and nodes that it should prefer."""
