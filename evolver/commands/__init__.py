"""The commands of `evolver`, one file per noun."""
