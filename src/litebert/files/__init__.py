"""The files that litebert writes: whole or absent, and never in place of others.

`writing` makes every output in a folder of `staging`, next to its place, and gives it
its name when it is whole, by `renaming`; `replacing` says which names are free for it.
`locking` keeps two processes from writing the same one. `reading` reads small files
with a size limit.
"""

from litebert.files.locking import append_line, locked, open_log, remove_log
from litebert.files.reading import (
    Json,
    as_path,
    format_bytes,
    hash_file,
    parse_json,
    read_capped,
    read_json,
)
from litebert.files.replacing import (
    IfExists,
    by_force,
    foreign_files,
    require_new,
    require_replaceable,
)
from litebert.files.staging import clear_stale, is_staging
from litebert.files.writing import (
    encode_json,
    remove_folder,
    staged_folder,
    sync_file,
    write_bytes,
    write_json,
    write_stream,
    write_text,
)

__all__ = [
    "IfExists",
    "Json",
    "append_line",
    "as_path",
    "by_force",
    "clear_stale",
    "encode_json",
    "foreign_files",
    "format_bytes",
    "hash_file",
    "is_staging",
    "locked",
    "open_log",
    "parse_json",
    "read_capped",
    "read_json",
    "remove_folder",
    "remove_log",
    "require_new",
    "require_replaceable",
    "staged_folder",
    "sync_file",
    "write_bytes",
    "write_json",
    "write_stream",
    "write_text",
]
