"""Admission: pods of Mid and Batch ask for what is lent, and a configuration that means nothing is not taken."""
