"""Queue, policy, batcher and lanes: from a submitted request to a dispatched batch and back."""
