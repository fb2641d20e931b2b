"""Estimates how many new nodes the pending pods need."""
