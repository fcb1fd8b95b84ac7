"""Skills to composed tasks: what flows between skills, the rules that compositions obey, and an even sample of them."""
