"""Scaling of groups by how full their nodes are, as Escalator does it: plain values in, decisions out, no effects.

`observation` selects a group's nodes and pods, `scan` decides what is to be done now, `memory` keeps what the next
scan must know. `rules.Fixes` names everything that is done otherwise than by Escalator; under `compat: escalator`
none of it is.
"""
