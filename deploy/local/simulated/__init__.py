"""Nodes that exist in the API only: their pods use what a curve or a trace says, and real agents watch them."""
