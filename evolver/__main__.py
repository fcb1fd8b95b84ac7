"""`python -m evolver` is the command `evolver`."""

from evolver.cli import main

main()
