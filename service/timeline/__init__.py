"""Nsight Systems and Nsight Compute on what a diagnosis asks about: the exact commands, and their running."""
