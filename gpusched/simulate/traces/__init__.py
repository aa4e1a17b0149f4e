"""Traces of clusters: jobs with their times, read from published files or generated."""
