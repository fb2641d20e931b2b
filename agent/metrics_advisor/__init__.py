"""Reads the usage of the node and its pods into the metric cache, once a second."""
