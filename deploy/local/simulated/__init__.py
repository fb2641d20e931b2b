"""Nodes that exist in the API only: their pods use what a curve or a trace specifies, and real agents observe them."""
