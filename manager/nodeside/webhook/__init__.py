"""Admission: pods of Mid and Batch request lent resources, and invalid configurations are denied."""
