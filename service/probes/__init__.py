"""Experiments that the server runs on itself, and who decides when."""
