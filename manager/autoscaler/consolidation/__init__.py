"""Consolidation by price: replaces nodes by fewer or cheaper ones, if that saves enough for what it disturbs.

Pure functions of plain values. What one replacement has come to is kept in the books (`cluster_state.replacement`).
"""
