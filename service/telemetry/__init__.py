"""What the server knows about itself: metrics, recorder and statistics."""
