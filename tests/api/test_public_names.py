"""The names of the package: found by completion before they are imported."""

import litebert


def test_public_names_are_listed_before_they_are_imported() -> None:
    assert set(litebert.__all__) <= set(dir(litebert))
    assert all(getattr(litebert, name) for name in litebert.__all__)
