"""The ring-buffer time series database of one node."""
