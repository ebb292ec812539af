"""Damage and changes of a corpus are noticed."""

import resource
import shutil
from pathlib import Path
from unittest.mock import Mock

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from litebert.config import ObjectiveConfig
from litebert.corpus import Corpus, build_corpus, check_corpus, shards
from litebert.corpus import corpus as corpora
from litebert.errors import DamagedError
from litebert.files import hash_file
from litebert.objectives import CorpusLoader, LoaderSettings
from litebert.tokenizer import models
from tests.memory import require_proc

ARRAYS = ("tokens", "sentences", "documents")


def second(corpus: Path, name: str) -> Path:
    return corpus / "shard-00000-0001" / f"{name}.npy"


@pytest.fixture(scope="module")
def pristine(
    stories: Path, vocabulary: Path, tmp_path_factory: pytest.TempPathFactory
) -> Path:
    """Build a corpus of several shards with a held-out split."""
    output = tmp_path_factory.mktemp("pristine") / "corpus"
    settings = {
        "sentences": "line",
        "held_out": 0.2,
        "shard_tokens": 9_000,
        "workers": 1,
    }
    build_corpus([stories], tokenizer=vocabulary, output=output, **settings)
    return output


@pytest.fixture
def corpus(pristine: Path, tmp_path: Path) -> Path:
    """Return a copy to be damaged."""
    return shutil.copytree(pristine, tmp_path / "corpus")


def change(path: Path) -> None:
    """Replace one token id of a shard."""
    tokens = np.load(path, mmap_mode="r+")
    tokens[40] = 9 + (tokens[40] == 9)
    tokens.flush()


@given(st.data())
@settings(deadline=None, max_examples=60)
def test_every_flipped_bit_is_found(pristine: Path, data: st.DataObject) -> None:
    path = second(pristine, data.draw(st.sampled_from(ARRAYS)))
    flipped = bytearray(whole := path.read_bytes())
    flipped[data.draw(st.integers(0, len(whole) - 1))] ^= 1 << data.draw(
        st.integers(0, 7)
    )
    try:
        path.write_bytes(flipped)
        with pytest.raises(DamagedError, match=path.name):
            Corpus.open(pristine)
    finally:
        path.write_bytes(whole)
    Corpus.open(pristine)


def test_damage_in_the_held_out_part_swapped_shards_and_another_manifest_are_found(
    corpus: Path,
) -> None:
    change(corpus / "held-out/shard-00000-0000/tokens.npy")
    manifest = corpus / "corpus.json"
    with pytest.raises(DamagedError, match="held-out"):
        Corpus.open(corpus).held_out()
    whole = manifest.read_text()
    changes = {
        '"format": 1': '"format": 2',
        '"tokens":': '"tokes":',
        '"documents": ': '"documents": -',
        "{": "[",
    }
    for old, new in {**changes, '"name": "shard-': '"name": "../../etc/shard-'}.items():
        manifest.write_text(whole.replace(old, new))
        with pytest.raises(DamagedError, match=r"corpus\.json"):
            Corpus.open(corpus)
    manifest.write_text(whole)
    one = corpus / "shard-00000-0000"
    two = corpus / "shard-00000-0001"
    for old, new in ((one, corpus / "aside"), (two, one), (corpus / "aside", two)):
        old.rename(new)
    with pytest.raises(DamagedError):
        Corpus.open(corpus, verify=True)


def test_limit_on_open_files_is_raised_where_needed(
    pristine: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    require_proc()
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    monkeypatch.setattr(
        corpora, "SPARE_FILES", len(list(Path("/proc/self/fd").iterdir())) + 20
    )
    resource.setrlimit(resource.RLIMIT_NOFILE, (corpora.SPARE_FILES, limits[1]))
    try:
        mapped = 3 * len(Corpus.open(pristine).shards)
        assert (
            resource.getrlimit(resource.RLIMIT_NOFILE)[0]
            == corpora.SPARE_FILES + mapped
        )
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)


def test_files_that_were_verified_are_read_again_only_after_a_change(
    corpus: Path, monkeypatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(shards, "hash_file", counted := Mock(wraps=hash_file))

    def hashed(**how: bool) -> int:  # the files that one opening reads from end to end
        counted.reset_mock()
        Corpus.open(corpus, **how)
        return counted.call_count

    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    # files are old enough to remember
    monkeypatch.setattr(corpora, "RECENT_SECONDS", 0.0)
    assert hashed() > 0 and hashed() == 0 and hashed(verify=True) > 0
    second(corpus, "tokens").touch()
    assert hashed() == 1
    (kept,) = (tmp_path / "cache").rglob("*.json")
    for content in (b"", b"[]", b"{" * 100_000, b'{"a": 1}'):
        kept.write_bytes(content)
        assert hashed() > 0
    monkeypatch.setattr(corpora, "RECENT_SECONDS", 60.0)
    second(corpus, "tokens").touch()
    assert hashed() >= 1 and hashed() >= 1, (
        "what changed a moment ago is not remembered"
    )
    monkeypatch.setattr(corpora, "RECENT_SECONDS", 0.0)
    # a file: no folder can be made there
    monkeypatch.setenv("XDG_CACHE_HOME", str(kept))
    assert hashed() == hashed() > 0


@pytest.mark.parametrize("name", ARRAYS)
@pytest.mark.parametrize("how", ["bytes", "truncated", "deleted"])
def test_a_change_while_in_use_is_an_error_and_never_a_signal(
    corpus: Path, name: str, how: str
) -> None:
    opened = Corpus.open(corpus).shards[1]
    path = second(corpus, name)
    path.touch()
    opened.require_unchanged()  # the bytes are still the same
    if how == "deleted":
        path.unlink()
    else:
        with path.open("r+b") as file:
            (
                file.truncate(200)
                if how == "truncated"
                else (file.seek(130), file.write(b"\x07"))
            )
    with pytest.raises(DamagedError, match="LB-340"):
        opened.require_unchanged()


@pytest.mark.parametrize("change", ["model", "settings", "deleted"])
def test_another_tokenizer_in_a_corpus_is_refused(corpus: Path, change: str) -> None:
    folder = corpus / "tokenizer"
    if change == "deleted":
        shutil.rmtree(folder)
    elif change == "settings":
        settings = (config := folder / "tokenizer_config.json").read_text()
        assert '"do_lower_case": true' in settings
        config.write_text(
            settings.replace('"do_lower_case": true', '"do_lower_case": false')
        )
    else:
        data = bytearray((model := folder / "spiece.model").read_bytes())
        data[data.index(b"t") + 3] ^= 1
        model.write_bytes(data)
    with pytest.raises(DamagedError, match="LB-341"):
        Corpus.open(corpus).tokenizer()


def test_a_tokenizer_written_by_another_python_is_whole_and_any_other_change_is_found(
    corpus: Path,
) -> None:
    whole = (path := corpus / "tokenizer/tokenizer.json").read_text()
    marks = r"\\x{1E944}-\\x{1E94A}"
    changes = {"x{1680}": "x{1681}", "NFKD": "NFKC", "x{300}": "y{300}"}
    for old, new in {marks: "", **changes}.items():
        path.write_text(whole.replace(old, new, 1))
        assert path.read_text() != whole
        assert check_corpus(corpus, verify_only=True).exit_code == (
            0 if old == marks else 3
        )


def test_batches_stop_where_the_corpus_changes(corpus: Path) -> None:
    opened = Corpus.open(corpus)
    settings = LoaderSettings(
        opened.tokenizer(), ObjectiveConfig(max_seq_length=64), batch_size=32, seed=1
    )
    loader = CorpusLoader(opened.shards, settings)
    loader.batch(0)
    for path in corpus.glob("shard-*/tokens.npy"):
        change(path)
    with pytest.raises(DamagedError, match="LB-340"):
        loader.batch(1)


def test_control_without_the_hash_a_changed_id_is_not_noticed(
    corpus: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    change(second(corpus, "tokens"))
    with pytest.raises(DamagedError, match="LB-330"):
        Corpus.open(corpus)
    monkeypatch.setattr(shards.StampedFile, "verify", lambda _: None)
    Corpus.open(corpus)


def test_control_without_checks_a_change_in_use_and_another_tokenizer_are_not_noticed(
    corpus: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        models,
        "vocabulary_hash",
        lambda *_: Corpus.open(corpus).manifest.plan.tokenizer_hash,
    )
    with pytest.raises(pytest.fail.Exception, match="DID NOT RAISE"):
        test_another_tokenizer_in_a_corpus_is_refused(corpus, "settings")
    monkeypatch.setattr(shards.StampedFile, "require_unchanged", lambda _: None)
    with pytest.raises(pytest.fail.Exception, match="DID NOT RAISE"):
        test_batches_stop_where_the_corpus_changes(corpus)
