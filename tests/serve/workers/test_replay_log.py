"""What a worker that comes later is told."""

from __future__ import annotations

from ox.serve.workers.replay_log import ReplayLog


def test_the_newest_word_on_a_subject_comes_last_and_alone() -> None:
    journal = ReplayLog()
    journal.note("load", {"name": "a", "parameters": {"config": "{}"}})
    journal.note("load", {"name": "b", "parameters": {}})
    journal.note("unload", {"name": "a", "parameters": {}})
    assert journal.calls() == [
        ("load", {"name": "b", "parameters": {}}),
        ("unload", {"name": "a", "parameters": {}}),
    ]


def test_regions_that_are_gone_are_forgotten() -> None:
    journal = ReplayLog()
    for region in "abc":
        journal.note("shared_memory_register", {"region": region, "key": f"/{region}", "offset": 0, "byte_size": 8})
    journal.note("log_settings", {"settings": {"log_info": False}})
    on_gpu = {"region": "b", "raw_handle": "AAAA", "device_id": 0, "byte_size": 8}
    journal.note("cuda_shared_memory_register", on_gpu)
    journal.note("shared_memory_unregister", {"region": "b"})
    assert [its.get("region") for _, its in journal.calls()] == ["a", "c", None, "b"]
    journal.note("shared_memory_unregister", {"region": ""})
    assert journal.calls()[1:] == [("cuda_shared_memory_register", on_gpu)]
    journal.note("cuda_shared_memory_unregister", {"region": ""})
    assert [call for call, _ in journal.calls()] == ["log_settings"]


def test_settings_add_up() -> None:
    journal = ReplayLog()
    journal.note("log_settings", {"settings": {"log_info": False, "log_verbose_level": 1}})
    journal.note("log_settings", {"settings": {"log_info": True}})
    journal.note("trace_setting", {"model": "", "settings": {"trace_rate": ["5"]}})
    journal.note("trace_setting", {"model": "m", "settings": {"trace_rate": ["7"]}})
    journal.note("trace_setting", {"model": "m", "settings": {}})  # takes the model's own away
    assert journal.calls() == [
        ("log_settings", {"settings": {"log_info": True, "log_verbose_level": 1}}),
        ("trace_setting", {"model": "", "settings": {"trace_rate": ["5"]}}),
        ("trace_setting", {"model": "m", "settings": {}}),
    ]
