"""Scales groups by the utilization of their nodes, as Escalator does: plain values in, decisions out, no effects.

`observation` selects a group's nodes and pods, `scan` decides what to do now, `memory` keeps what the next scan must
know. docs/how-to/escalator.md lists every difference from Escalator.
"""
