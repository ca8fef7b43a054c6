"""What limits the server, judged from frozen telemetry: pure functions, which ask nothing and wait for nothing."""
