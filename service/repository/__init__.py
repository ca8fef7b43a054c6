"""Model repository: cards, versions, loading, unloading and reloading."""
