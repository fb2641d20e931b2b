"""The interface to clouds, and the clouds that implement it."""
