"""What a node offers to Mid and Batch, why, and when its Node is written: pure functions of the cluster's state."""
