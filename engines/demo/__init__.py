"""The demo repository: cards, and the command that lays them out beside real models."""
