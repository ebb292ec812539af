"""A folder for each class, of which each file is a text: `reviews/good/1.txt`."""

from collections.abc import Iterator
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

from litebert.errors import LitebertError, RequestError, format_count
from litebert.files import hash_file
from litebert.reading.source import (
    FOLDER,
    Source,
    find_input,
    read_lines,
    recognize_encoding,
)
from litebert.reading.tables import Scanned
from litebert.tasks.own.cells import split_of
from litebert.tasks.own.table import TableFile

_KINDS = (".txt",)


def find_folder(path: Path) -> Source:
    """Return a folder as an input; its size is not known."""
    return Source(str(path), str(path.absolute()), FOLDER, "", 0)


@dataclass(frozen=True)
class ClassFolder:
    """The texts of a folder, sorted by name. The folder of a text is its label; above
    that may be one for each split.
    """

    source: Source
    texts: tuple[Path, ...]
    has_splits: bool

    @classmethod
    def of(cls, source: Source) -> "ClassFolder":
        """List the texts of a folder."""
        folder = Path(source.location)
        files = sorted(path for path in folder.rglob("*.txt*") if path.is_file())
        texts = [path for path in files if len(path.relative_to(folder).parts) > 1]
        if not texts:
            raise _no_texts(source, len(files))
        parts = [path.relative_to(folder).parts for path in texts]
        has_splits = all(len(names) > 2 and split_of(names[0]) for names in parts)
        return cls(source, tuple(texts), has_splits)

    @property
    def hash(self) -> str:
        """The hash of all texts and their names."""
        digest = sha256()
        for path in self.texts:
            name = path.relative_to(self.source.location).as_posix()
            digest.update(f"{name} {hash_file(path)}\n".encode())
        return digest.hexdigest()

    def open(self) -> TableFile:
        """Return the texts as a table: the text of each, its label, and its name."""
        labels = {path.parent.name for path in self.texts}
        split = ("split",) if self.has_splits else ()
        return TableFile(
            self.source,
            f"{format_count(len(self.texts), 'text')} in the folders of"
            f" {format_count(len(labels), 'label')}",
            ("text", "label", *split, "id"),
            self._scan,
        )

    def _scan(self) -> Iterator[Scanned]:
        folder = Path(self.source.location)
        for number, path in enumerate(self.texts, 1):
            names = path.relative_to(folder)
            try:
                source = recognize_encoding(find_input(str(path), _KINDS))
                text = "\n".join(line for _, line in read_lines(source))
            except LitebertError as error:
                yield number, error
                continue
            row = {"text": text, "label": path.parent.name, "id": names.as_posix()}
            if self.has_splits:
                row["split"] = names.parts[0]
            yield number, row


def _no_texts(source: Source, num_files: int) -> RequestError:
    received = "no .txt file in it"
    if num_files:
        received = f"{format_count(num_files, '.txt file')} in it, and no folder"
    return RequestError(
        "LB-869",
        f"{source.name} has no folder of texts for each label",
        received=received,
        expected="a folder for each label, and a .txt file in it for each text",
        next="put each text into the folder of its label; or name one file of a table",
    )
