"""What an executor is made of: claims, the record in RQ, time limits, variables."""
