"""Front-end processes and the engine process: requests cross in shared memory, what is said about them on a socket."""
