"""What each node lends: NodeMetrics into Mid and Batch capacity, evictions, admission and advice to the scheduler."""
