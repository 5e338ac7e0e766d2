"""The folder in which a run resumes, and the note if it resumes in none."""

import json
import os

import pytest

from calipers.errors import InputError
from calipers.running.folder import all_starts, continued, find_folder, folder_name

HERE, THERE = "http://127.0.0.1:1/v1", "http://127.0.0.1:2/v1"
PLAIN = {"benchmark": "sums", "model": "openai/m", "sampling": {"temperature": None}}


def asked(endpoint=HERE, **more):
    return {**PLAIN, **({"endpoint": endpoint} if endpoint else {}), **more}


def begun(root, identity, age=0, **plan):
    """A run folder with the name that its version would have given it."""
    folder = root / folder_name(identity["benchmark"], identity["model"], identity)
    folder.mkdir(parents=True)
    written = {"schema": "calipers.plan/1", "samples": 1, "tasks": [], "model": identity["model"]}
    (folder / "plan.json").write_text(json.dumps({**written, "identity": identity, **plan}))
    os.utime(folder / "plan.json", (1000 - age, 1000 - age))
    return folder


def earlier(root, url, **plan):
    """A run folder of a version without an endpoint in its identity."""
    return begun(root, PLAIN, settings={"base_url": {"value": url, "from": "default"}}, **plan)


def test_the_same_run_is_found(tmp_path):
    folder = begun(tmp_path, asked())
    assert find_folder(tmp_path, asked(), False) == find_folder(tmp_path, asked(), True) == (folder, [])


def test_the_first_of_its_kind_needs_no_word(tmp_path):
    begun(tmp_path, asked(model="openai/other"))
    begun(tmp_path, asked(benchmark="other"))
    folder, notes = find_folder(tmp_path, asked(), False)
    assert (folder.exists(), notes) == (False, [])
    assert find_folder(tmp_path / "nowhere", asked(), True)[1] == []


def test_another_endpoint_begins_a_new_folder_and_says_so(tmp_path):
    first = begun(tmp_path, asked())
    folder, (note,) = find_folder(tmp_path, asked(THERE), False)
    assert folder != first
    assert note == (
        f"{folder}: starting a new run, because {first} differs (endpoint: {HERE} there, {THERE} requested); "
        "if it is the same model, --same-model resumes that run"
    )
    assert find_folder(tmp_path, asked(THERE), True) == (first, [])


def test_any_other_setting_does_so_too(tmp_path):
    begun(tmp_path, asked(THERE, sampling={"temperature": 0.5}), age=1)
    nearest = begun(tmp_path, asked(sampling={"temperature": 0}), age=2)
    for same_model in (False, True):
        folder, (note,) = find_folder(tmp_path, asked(), same_model)
        assert not folder.exists()
        assert note.endswith(f"because {nearest} differs (sampling.temperature: 0 there, null requested)")


def test_of_several_the_user_decides(tmp_path):
    folders = [begun(tmp_path, asked(f"http://127.0.0.1:{port}/v1"), age=port) for port in (4, 3)]
    with pytest.raises(InputError) as caught:
        find_folder(tmp_path, asked(), True)
    assert str(caught.value) == (
        "--same-model: 2 runs differ from this one only in the endpoint: "
        f"{folders[0]}, {folders[1]}; name one of them with --out"
    )


@pytest.mark.parametrize("url", [HERE, f"{HERE}/", f"{HERE}/chat/completions"])
def test_a_folder_of_an_earlier_version_is_found_by_its_url(tmp_path, url):
    folder = earlier(tmp_path, url)
    assert find_folder(tmp_path, asked(), False) == (folder, [])
    assert continued(folder, asked(), False) == (asked(), [])


@pytest.mark.parametrize(("url", "said"), [(THERE, f"endpoint: {THERE} there"), (None, "endpoint: not recorded there")])
def test_a_folder_of_an_earlier_version_with_another_url_is_another_run(tmp_path, url, said):
    first = earlier(tmp_path, url)
    folder, (note,) = find_folder(tmp_path, asked(), False)
    assert folder != first
    assert f"({said}, {HERE} requested); if it is the same model, --same-model" in note
    assert find_folder(tmp_path, asked(), True) == (first, [])
    with pytest.raises(
        InputError, match=(r"contains a different run: endpoint: .* here, " r".* requested; choose another --out, or")
    ):
        continued(first, asked(), False)
    assert continued(first, asked(), True)[0] == {**PLAIN, **({"endpoint": url} if url else {})}


def test_a_file_of_an_earlier_version_is_found_by_its_hash(tmp_path):
    plain = {**PLAIN, "model": "replay/old.jsonl"}
    folder = begun(tmp_path, plain, inputs=[{"path": "old.jsonl", "sha256": "ab"}])
    assert find_folder(tmp_path, {**plain, "endpoint": "sha256:ab"}, False) == (folder, [])
    assert find_folder(tmp_path, {**plain, "endpoint": "sha256:cd"}, False)[0] != folder


def test_a_model_whose_endpoint_nobody_knows_goes_on(tmp_path):
    folder = earlier(tmp_path, HERE)
    assert continued(folder, PLAIN, False) == (PLAIN, [])


def test_a_folder_keeps_the_endpoint_it_began_with(tmp_path):
    folder = begun(tmp_path, asked())
    kept, (note,) = continued(folder, asked(THERE), True)
    assert kept == asked()
    assert note == (
        f"--same-model: the run started with {HERE} and resumes with {THERE}; every rollout records its endpoint"
    )
    with pytest.raises(InputError) as caught:
        continued(folder, asked(THERE), False)
    assert str(caught.value) == (
        f"{folder}: contains a different run: endpoint: {HERE} here, {THERE} requested; "
        "choose another --out, or --same-model if it is the same model"
    )
    with pytest.raises(
        InputError, match=r"sampling\.temperature: null here, 1 requested; endpoint: .*; choose another --out$"
    ):
        continued(folder, asked(THERE, sampling={"temperature": 1}), True)


def test_a_folder_nobody_can_read_is_passed_over(tmp_path):
    (begun(tmp_path, asked(THERE)) / "plan.json").write_text("{")
    assert find_folder(tmp_path, asked(), False)[1] == []


def start(at, endpoint=HERE, **more):
    return {"at": at, "endpoint": endpoint, "settings": {}, **more}


def test_starts_are_only_ever_added_to(tmp_path):
    folder = begun(tmp_path, asked(), starts=[start("one"), start("two", THERE)])
    assert all_starts(folder, [start("three")]) == [start("one"), start("two", THERE), start("three")]
    assert all_starts(folder, [start("three", THERE)]) == [start("one"), start("two", THERE)]  # as the last one


def test_the_start_of_an_earlier_version_is_kept(tmp_path):
    made = {"versions": {"calipers": "0.1"}, "git": "abc", "inputs": [], "created_at": "then"}
    first, second = all_starts(earlier(tmp_path, THERE, **made), [start("now")])
    assert second == start("now")
    assert first == {
        "at": "then",
        "endpoint": THERE,
        "note": "the last start, by an earlier version that recorded only the last one",
        "settings": {"base_url": THERE},
        **{name: made[name] for name in ("versions", "git", "inputs")},
    }
