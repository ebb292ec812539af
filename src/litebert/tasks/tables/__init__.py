"""A user's own files of examples as a data set: the table and its columns, the
examples, the data set.
"""
