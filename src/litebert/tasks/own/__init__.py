"""A user's own files of examples as a data set: columns, the table that they stand in, examples, the data set."""
