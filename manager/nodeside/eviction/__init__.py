"""Running Mid and Batch pods that hold more than their node offers: reported, and evicted in order if configured."""
