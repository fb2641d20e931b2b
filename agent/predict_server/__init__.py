"""From samples to a peak, and from a peak to what can be reclaimed."""
