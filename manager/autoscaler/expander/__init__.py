"""Chooses between several scale-up options."""
