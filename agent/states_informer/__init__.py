"""What runs on this node, as the API server tells it."""
