"""The node's pods and objects, from the API server."""
