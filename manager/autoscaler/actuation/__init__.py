"""Carries decisions out on nodes and in the cloud."""
