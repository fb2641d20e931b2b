"""Groups that do not exist yet: which could be created, and which of the created ones can go."""
