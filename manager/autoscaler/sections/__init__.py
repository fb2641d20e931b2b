"""The sections of the autoscaler's settings, each of which adds to the one before."""
