"""Nodes that others replace: unhealthy, interrupted, old and drifted ones, and, in consolidation, dear ones.

Pure functions of plain values. What one replacement has come to is kept in the registry (`cluster_state.replacement`).
"""
