"""Judges models of the peak on recorded usage: packs nodes, replays them tick by tick, and compares with the oracle."""
