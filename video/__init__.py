"""`inferlane video`: a client of streams that reads, shows and keeps what a model sees. It knows no server code."""
