"""Ways to run many attempts at once."""
