"""Load generation over HTTP: open and closed loops, and locust users."""
