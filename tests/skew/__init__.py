"""Recordings of versions, read by this one; its schemas, by what theirs promise."""
