"""Puts agent and manager together: the command line, the local cluster, what a cluster installs."""
