"""What was decided, done to nodes and to the cloud."""
