"""A diagnosis for people at a terminal."""
