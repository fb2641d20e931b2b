"""Nodes that have to go for their own sake: unhealthy ones, those that the cloud is about to interrupt,
those past their lifetime, and those that have drifted.

Pure functions of plain values. What follows once a node is chosen is `consolidation.replacing`.
"""
