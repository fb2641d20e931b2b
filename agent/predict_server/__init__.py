"""Predicts a peak from samples, and the reclaimable amount from the peak."""
