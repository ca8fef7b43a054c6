"""The scarce resource behind one small protocol, and its implementations."""
