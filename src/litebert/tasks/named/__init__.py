"""Data sets that have a name: GLUE, SQuAD and RACE."""
