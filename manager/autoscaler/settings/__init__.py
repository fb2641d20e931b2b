"""The sections of the autoscaler's settings, each of which adds to the one before, and all of them together."""
