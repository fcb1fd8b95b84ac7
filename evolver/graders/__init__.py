"""How results are graded: criteria of kind `program` by the task's check program beside the frozen state, those
of kind `judge` by a model that reads it."""
