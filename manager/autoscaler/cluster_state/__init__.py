"""The state of groups and requests, from one iteration to the next."""
