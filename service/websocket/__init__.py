"""WebSocket connections (RFC 6455) whose large messages are read straight into memory of their own."""
