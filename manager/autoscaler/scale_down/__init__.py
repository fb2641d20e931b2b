"""Scale-down of groups that scale for pending pods: the unneeded nodes, the nodes to remove now, and why others stay.

Pure functions of plain values.
"""
