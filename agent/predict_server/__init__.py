"""From samples to a peak, and from a peak to the reclaimable amount."""
