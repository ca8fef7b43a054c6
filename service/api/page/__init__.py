"""The server's page for people: a shell, styles and scripts of our own, served beside the figures that they show."""
