"""Scales groups by the utilization of their nodes, as Escalator does: plain values in, decisions out, no effects.

`observation` selects a group's nodes and pods, `scan` decides what to do now, `memory` keeps what the next scan must
know. `rules.Fixes` names every difference from Escalator; under `compat: escalator` none applies.
"""
