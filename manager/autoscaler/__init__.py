"""Decides how many nodes of which kind the cluster has, and at what cost."""
