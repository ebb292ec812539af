"""Kinds of tasks, one module each: examples, rows of users' own files, encoding, loss,
answers, measures.

Their order is that in which the columns of a user's own file are tried.
"""

# each adds its heads and kinds to the registries
from litebert.tasks.kinds import text as _text  # noqa: I001, F401
from litebert.tasks.kinds import text_heads as _text_heads  # noqa: F401
from litebert.tasks.kinds import tagging as _tagging  # noqa: F401
from litebert.tasks.kinds import spans as _spans  # noqa: F401
from litebert.tasks.kinds import choice as _choice  # noqa: F401
from litebert.tasks.kinds import text_rows as _text_rows  # noqa: F401
from litebert.tasks.kinds import similarity as _similarity  # noqa: F401
from litebert.tasks.kinds import matches as _matches  # noqa: F401
