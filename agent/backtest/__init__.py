"""Judges models of the peak on recorded usage: nodes are packed, replayed tick by tick, and held against the oracle."""
