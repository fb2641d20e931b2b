"""Node groups that do not exist yet: which could be created, and which created ones can be deleted."""
