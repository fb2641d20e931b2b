"""Reads what the node and its pods use, once a second, into the metric cache."""
