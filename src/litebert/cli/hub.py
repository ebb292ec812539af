"""litebert hub: fetch models from the Hugging Face Hub, and publish them there."""

from __future__ import annotations

import shutil
from pathlib import Path

import click

from litebert.cli.output import show, show_json


@click.group()
def hub() -> None:
    """Fetch a model from the Hugging Face Hub; publish one there.

    \b
    litebert hub pull albert/albert-base-v2 --output models/base
    litebert hub push runs/mine OWNER/mine --license apache-2.0 --dry-run
    """


@hub.command("pull")
@click.argument("name")
@click.option("--output", type=click.Path(path_type=Path), help="New folder for a copy.")
@click.option("--revision", help="Branch, tag or commit; by default the newest.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def pull(name: str, output: Path | None, revision: str | None, as_json: bool) -> None:
    """Fetch the model OWNER/NAME into the cache and print its folder there.

    With --output the folder is also copied, byte for byte, to that place. `litebert import
    huggingface` converts a model instead.

    \b
    litebert hub pull albert/albert-base-v2
    litebert hub pull albert/albert-base-v2 --output models/base --json
    """
    from litebert import hub
    from litebert.files import staged_folder

    if output is not None:
        hub.require_new(output)
    folder = hub.pull(hub.HubName.read(name, revision=revision))
    if output is not None:
        with staged_folder(output) as staged:
            for file_name, file in hub.model_files(folder).items():
                (staged / file_name).parent.mkdir(exist_ok=True)
                shutil.copyfile(file, staged / file_name)
        folder = output
    _show("folder", str(folder), as_json=as_json)


@hub.command("push")
@click.argument("folder", type=click.Path(path_type=Path))
@click.argument("name")
@click.option("--private", is_flag=True, help="Make a new repository private.")
@click.option("--revision", help="Branch to commit to, created if needed; by default main.")
@click.option("--message", default="Upload model", show_default=True, help="Message of the commit.")
@click.option("--license", default="", help="For the card, such as apache-2.0.")
@click.option("--language", "languages", multiple=True, help="For the card, such as en; repeats.")
@click.option("--dry-run", is_flag=True, help="Print what would be sent, and the card.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def push(
    folder: Path,
    name: str,
    private: bool,
    revision: str | None,
    message: str,
    license: str,
    languages: tuple[str, ...],
    dry_run: bool,
    as_json: bool,
) -> None:
    """Publish the model in FOLDER, a model folder or a run, as OWNER/NAME, in one commit.

    Its README.md is the model card; without one, a card is written from the configuration, the
    tokenizer and the run that the folder is part of. Other files in the folder are not sent.

    \b
    litebert hub push runs/mine OWNER/mine --license apache-2.0 --language en --dry-run
    litebert hub push runs/mine OWNER/mine --private
    """
    from litebert.hub import locate, plan_publication

    publication = plan_publication(
        locate(folder), name, revision=revision, private=private, message=message, license=license, languages=languages
    )
    if as_json and dry_run:
        show_json(publication.plan)
        return
    show(publication.described(), err=not dry_run)
    if dry_run:
        show(f"\n{publication.card}")
        return
    url = publication.send()
    _show("commit", url, as_json=as_json)


def _show(name: str, value: str, *, as_json: bool) -> None:
    if as_json:
        show_json({name: value})
    else:
        show(value)
