"""Folders of texts: a folder for each class, of which each file is a text
(`reviews/good/1.txt`); texts with their entities beside them, as brat writes them
(`1.txt` and `1.ann`); or texts to be answered (`new/1.txt`).
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from shlex import quote

from litebert.errors import LitebertError, RequestError, format_count
from litebert.files import hash_file
from litebert.reading.lines import read_lines, recognize_encoding
from litebert.reading.source import FOLDER, Source, find_input
from litebert.reading.tables import Scanned
from litebert.tasks.tables.cells import split_of
from litebert.tasks.tables.table import TableFile

_KINDS = (".txt",)
# the ending of the files in which brat keeps the entities of the text beside it
ENTITIES = ".ann"


def find_folder(path: Path) -> Source:
    """Return a folder as an input; its size is not known."""
    return Source(str(path), str(path.absolute()), FOLDER, "", 0)


@dataclass(frozen=True)
class TextFolder:
    """The texts of a folder, sorted by name.

    With `has_labels`, the folder of a text is its label, and above that may be one for
    each split; with `has_entities`, each text has a file of entities beside it.
    """

    source: Source
    texts: tuple[Path, ...]
    has_labels: bool = False
    has_splits: bool = False
    has_entities: bool = False

    @classmethod
    def of(cls, source: Source) -> "TextFolder":
        """List the texts of a folder."""
        folder = Path(source.location)
        files = sorted(path for path in folder.rglob("*.txt*") if path.is_file())
        annotated = [path for path in files if path.with_suffix(ENTITIES).is_file()]
        if annotated:
            return cls(source, tuple(annotated), has_entities=True)
        if not files:
            raise _no_texts(source)
        texts = [path for path in files if len(path.relative_to(folder).parts) > 1]
        if not texts:
            return cls(source, tuple(files))
        parts = [path.relative_to(folder).parts for path in texts]
        has_splits = all(len(names) > 2 and split_of(names[0]) for names in parts)
        return cls(source, tuple(texts), has_labels=True, has_splits=has_splits)

    @property
    def hash(self) -> str:
        """The hash of all texts, their entities and their names."""
        digest = sha256()
        files = list(self.texts)
        if self.has_entities:
            files += [path.with_suffix(ENTITIES) for path in self.texts]
        for path in files:
            name = path.relative_to(self.source.location).as_posix()
            line = f"{name} {hash_file(path)}\n"
            digest.update(line.encode("utf-8", "surrogatepass"))  # odd names
        return digest.hexdigest()

    def open(self) -> TableFile:
        """Return the texts as a table: the text of each, its label or its entities, and
        its name.
        """
        number = format_count(len(self.texts), "text")
        if self.has_entities:
            writing = f"{number} with entities of brat"
            return TableFile(
                self.source, writing, ("text", "entities", "id"), self._scan
            )
        if not self.has_labels:
            return TableFile(self.source, number, ("text", "id"), self._scan)
        labels = {path.parent.name for path in self.texts}
        split = ("split",) if self.has_splits else ()
        return TableFile(
            self.source,
            f"{number} in the folders of {format_count(len(labels), 'label')}",
            ("text", "label", *split, "id"),
            self._scan,
        )

    def _scan(self) -> Iterator[Scanned]:
        """Yield a row for each text, or the error of a file that cannot be read."""
        folder = Path(self.source.location)
        for number, path in enumerate(self.texts, 1):
            names = path.relative_to(folder)
            row: dict[str, object] = {"id": names.as_posix()}
            try:
                row["text"] = "\n".join(_lines_of(path))
                if self.has_entities:
                    row["entities"] = _entities_in(path.with_suffix(ENTITIES))
                elif self.has_labels:
                    row["label"] = path.parent.name
            except LitebertError as error:
                yield number, error
                continue
            if self.has_splits:
                row["split"] = names.parts[0]
            yield number, row


def _lines_of(path: Path) -> Iterator[str]:
    source = recognize_encoding(find_input(str(path), _KINDS))
    return (line for _, line in read_lines(source))


# an entity of brat: T1, its label, and its first and last place; of one in several
# parts, 0 3;5 8, all that is between them
_BRAT = re.compile(r"T\d+\t(\S+) (\d+) (?:[\d; ]* )?(\d+)\t.*").fullmatch


def _entities_in(path: Path) -> list[object]:
    """Return the entities of a file of brat; none if it is empty, as for a text without
    entities. Its relations, events and notes are passed over.
    """
    if not path.stat().st_size:
        return []
    entities = list[object]()
    for _, line in read_lines(find_input(str(path), (ENTITIES,))):
        match = _BRAT(line)
        if match:
            label, start, end = match.groups()
            entities.append({"label": label, "start": int(start), "end": int(end)})
    return entities


def _no_texts(source: Source) -> RequestError:
    return RequestError(
        "LB-869",
        f"{source.name} has no texts",
        received="no .txt file in it",
        expected="a .txt file for each text, in the folder of its label if it has one",
        next=_file_of_splits(Path(source.location)) or "name one file of a table",
    )


def _file_of_splits(folder: Path) -> str | None:
    """Return the command for a folder whose files are the splits of a table, such as
    train.csv and data/test-00000-of-00001.parquet.
    """
    splits = dict[str, Path]()
    for path in sorted(folder.rglob("*.*")):
        split = split_of(re.split(r"[-_.]", path.name)[0])
        if split is not None and path.is_file():
            splits.setdefault(split, path)
    if "train" not in splits:
        return None
    command = f"litebert finetune {quote(str(splits['train']))}"
    evaluated_on = splits.get("dev", splits.get("test"))
    if evaluated_on is None:
        return command
    return f"{command} --dev {quote(str(evaluated_on))}"
