"""A thin client of the Kubernetes API: raw JSON decoded into the caller's own structs, in threads."""
