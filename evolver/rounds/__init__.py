"""Generation rounds: one frozen harness plays a planned set of units, each kept exactly once, into sealed shards."""
