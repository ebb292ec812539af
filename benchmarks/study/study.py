"""What a study found: a record in a JSON file, a conclusion, tables and figures."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, ClassVar, Generic, TypeVar

from pydantic import BaseModel

from litebert.files import write_text
from litebert.report.figures import Figure, picture
from litebert.report.tables import Table
from litebert.runs import read_record

Record = TypeVar("Record", bound=BaseModel)
Measured = TypeVar("Measured")
Output = Annotated[Path | None, "Folder for metrics and figures."]


@dataclass(frozen=True)
class Study(Generic[Measured]):
    """What was measured, a sentence that compares it with the paper, tables, figures,
    and the files that were written.
    """

    measured: Measured
    name: str
    finding: str
    tables: Sequence[Table]
    figures: Sequence[Figure] = ()
    written: tuple[Path, ...] = ()
    formats: ClassVar = ("json", "csv", "markdown")

    def __str__(self) -> str:
        return "\n\n".join(str(table) for table in self.tables)

    def as_json(self) -> Measured:
        return self.measured

    def as_csv(self) -> str:
        return self.tables[0].as_csv()

    def as_markdown(self) -> str:
        return "\n\n".join(table.as_markdown() for table in self.tables)

    @property
    def notes(self) -> tuple[str, ...]:
        return (self.finding, *map(str, self.written))

    def write(
        self, folder: Path | None, records: Mapping[str, BaseModel]
    ) -> "Study[Measured]":
        """Write the records as metrics files by name, and the figures."""
        if folder is None:
            return self
        texts = dict[str, str]()
        for name, record in records.items():
            texts[f"{name}.json"] = record.model_dump_json(indent=2)
        for number, figure in enumerate(self.figures, start=1):
            texts[f"{self.name}-{number}.svg"] = picture(figure)
        for name, text in texts.items():
            write_text(folder / name, text)
        return replace(self, written=tuple(folder / name for name in texts))


def read_findings(kind: type[Record], folder: Path, name: str) -> list[Record]:
    """Return the records in the metrics files with this name, which may contain a *."""
    advice = "make it again with this version; a file of another kind belongs elsewhere"
    records = list[Record]()
    for path in sorted(folder.glob(f"{name}.json")):
        record = read_record(kind, path, advice)
        if record is not None:
            records.append(record)
    return records
