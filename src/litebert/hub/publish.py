"""Publish a model on the Hub: the files of its folder, and its card."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from litebert.errors import LitebertError
from litebert.files import read_capped
from litebert.hub.card import CARD_FILE, WRITTEN_BY_LITEBERT, model_card
from litebert.hub.fetch import model_files
from litebert.hub.names import HubName
from litebert.hub.remote import PATIENCE, request, run

_LONGEST_CARD = 4 << 20


@dataclass(frozen=True)
class PublicationPlan:
    """What would be published: the size of each file in bytes, and if the card is kept or made."""

    repository: str
    revision: str
    private: bool
    message: str
    files: dict[str, int]
    card: str


@dataclass(frozen=True)
class Publication:
    """What is sent where; with `is_card_kept`, the card is the README.md of the folder."""

    name: HubName
    files: dict[str, Path]
    card: str
    is_card_kept: bool
    private: bool
    message: str

    @property
    def sizes(self) -> dict[str, int]:
        """The size of each file to send in bytes, including the card."""
        sizes = {name: file.stat().st_size for name, file in self.files.items()}
        return sizes | {CARD_FILE: len(self.card.encode())}

    @property
    def plan(self) -> PublicationPlan:
        """The plan as plain values, for JSON."""
        revision, card = self.name.revision or "main", "kept" if self.is_card_kept else "made"
        return PublicationPlan(self.name.repository, revision, self.private, self.message, self.sizes, card)

    def described(self) -> str:
        """Return the plan in words."""
        where = f"{self.plan.repository}, branch {self.plan.revision}"
        visibility = "private, if it is new" if self.private else "public, if it is new"
        lines = [f"{where} ({visibility}): {self.message}"]
        lines += [f"  {size:>13,}  {name}" for name, size in self.sizes.items()]
        card = "the README.md of the folder" if self.is_card_kept else "made from what is on disk"
        return "\n".join([*lines, f"  {sum(self.sizes.values()):>13,}  bytes; {CARD_FILE} {card}"])

    def send(self, *, patience: float = PATIENCE) -> str:
        """Upload everything in one commit and return its address; for `patience` see `push`."""
        return push(
            self.name,
            self.files,
            texts={CARD_FILE: self.card},
            private=self.private,
            message=self.message,
            patience=patience,
        )


def plan_publication(
    folder: Path,
    name: str,
    *,
    revision: str | None = None,
    private: bool = False,
    message: str = "Upload model",
    license: str = "",
    languages: Sequence[str] = (),
) -> Publication:
    """Check that a folder has a model, and return what publishing would send; send nothing.

    A README.md of your own is the card; otherwise it is made from the files on disk.

    Raises:
        LitebertError: LB-636, this is not a name; LB-637, there is a README.md and also a licence
            or a language; what `load_model` raises.
    """
    hub_name = HubName.read(name, revision=revision)
    card = model_card(folder, name=hub_name.repository, license=license, languages=languages)
    own = folder / CARD_FILE
    written = read_capped(own, _LONGEST_CARD, command=f"ls -l {own}") if own.is_file() else b""
    is_card_kept = own.is_file() and WRITTEN_BY_LITEBERT.encode() not in written
    if is_card_kept and (license or languages):
        raise LitebertError(
            "LB-637",
            f"{own} exists and is used unchanged",
            received="--license or --language",
            expected="license and language in its first lines, between the lines of ---",
            next=f"edit {own}, or move it away to have a card made",
        )
    if is_card_kept:
        card = written.decode("utf-8", "replace")
    files = {path: file for path, file in model_files(folder).items() if path != CARD_FILE}
    return Publication(hub_name, files, card, is_card_kept, private, message)


def push(
    name: HubName,
    files: dict[str, Path],
    *,
    texts: dict[str, str],
    private: bool = False,
    message: str = "Upload model",
    patience: float = PATIENCE,
) -> str:
    """Send files, and texts that become files, in one commit; return the commit's address.

    Repository and branch are created if needed.

    Raises:
        LitebertError: LB-621 to LB-633, the transfer failed.
    """
    wanted = request("push", name)
    wanted["files"] = {path: str(file.resolve()) for path, file in files.items()}
    wanted["texts"], wanted["private"], wanted["message"] = texts, private, message
    return str(run(wanted, patience)["url"])
