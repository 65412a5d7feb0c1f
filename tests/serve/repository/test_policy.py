"""Version policies."""

from __future__ import annotations

from ox.serve.repository.policy import Policy


def test_what_is_chosen() -> None:
    versions = [9, 10, 1]
    assert Policy().choose(versions) == {10}
    assert Policy(2).choose(versions) == {9, 10} and Policy(5).choose(versions) == {1, 9, 10}
    assert Policy(None).choose(versions) == {1, 9, 10}
    assert Policy(None, frozenset({1, 7})).choose(versions) == {1}
    assert Policy().choose([]) == set()


def test_as_json() -> None:
    assert Policy().to_json() == {"latest": {"num_versions": 1}}
    assert Policy(None).to_json() == {"all": {}}
    assert Policy(None, frozenset({3, 1})).to_json() == {"specific": {"versions": [1, 3]}}
