"""The cluster as scheduling sees it: pods and nodes as arrays, and what keeps a pod off a node."""
