"""EvSys' rows, of all three formats."""

import json

import pytest
from tasks.given import row

from calipers.errors import CalipersError
from calipers.systems.evsys.lent import (
    ChatMessagesRow,
    HarborTask,
    InProcessVerifier,
    PromptExample,
    TargetFormat,
    block_to_image_src,
    chat_messages_row_from_dict,
    from_dict,
    has_images,
    image_base64_block,
    image_url_block,
    iter_jsonl,
    parse_rows,
    prompt_example_from_dict,
    text_block,
    to_dict,
)

CHAT = {"messages": [{"role": "user", "content": "hi"}]}
PROMPT = {"inputs": {"q": "2 + 2"}, "expected": 4, "metadata": {"k": 1}}


@pytest.mark.parametrize(
    ("given", "typed"),
    [
        (CHAT, ChatMessagesRow([{"role": "user", "content": "hi"}])),
        (PROMPT, PromptExample({"q": "2 + 2"}, 4, {"k": 1})),
        (row("a"), HarborTask("a", "q a", InProcessVerifier("exact_match", "A"))),
    ],
)
def test_a_row_is_what_its_keys_say(given, typed):
    assert from_dict(given) == typed
    assert from_dict(to_dict(typed)) == typed


def test_a_task_may_have_no_verifier():  # for a dataset of which only completions are needed
    assert to_dict(HarborTask("a", "write")) == {
        "task_id": "a",
        "instruction": "write",
        "verifier": None,
        "metadata": {},
    }


@pytest.mark.parametrize("fmt", ["chat_messages", TargetFormat.CHAT_MESSAGES])
def test_rows_of_one_format(fmt):
    assert parse_rows([CHAT, CHAT], fmt) == [chat_messages_row_from_dict(CHAT)] * 2
    assert TargetFormat("harbor_task") == "harbor_task"


@pytest.mark.parametrize(
    ("rows", "fmt", "message"),
    [
        ([row("a"), CHAT], "harbor_task", "row 1 has format 'chat_messages'; expected 'harbor_task'"),
        ([3], "chat_messages", "row 0 has format 'unknown'; expected 'chat_messages'"),
        ([CHAT], "chat_mesages", "no format of rows named 'chat_mesages'; did you mean 'chat_messages'?"),
        ([CHAT, {"messages": []}], "chat_messages", "row 1: a chat_messages row has no messages; expected a list of "),
        ([PROMPT | {"metadata": 5}], "prompt_dataset", "row 0: metadata is 5; expected an object"),
        ([row("a", verifier={"kind": "in_process"})], "harbor_task", "row 0: 'fn_name'"),
    ],
)
def test_a_row_of_another_format_is_named(rows, fmt, message):
    with pytest.raises(CalipersError) as caught:
        parse_rows(rows, fmt)
    assert str(caught.value).startswith(message)


def test_a_file_of_mixed_rows(tmp_path):
    path = tmp_path / "rows.jsonl"
    path.write_text("\n".join(map(json.dumps, [CHAT, row("a"), PROMPT])) + "\n")
    assert [type(typed) for typed in iter_jsonl(str(path))] == [ChatMessagesRow, HarborTask, PromptExample]
    path.write_text(json.dumps(CHAT) + '\n\n{"question": 1}\n')
    with pytest.raises(
        ValueError, match=(rf"^{path}:3: the format of a row is unknown " r"\(question\); expected one of chat_")
    ):
        list(iter_jsonl(path))


@pytest.mark.parametrize(
    ("block", "source"),
    [
        (image_url_block("http://x/a.png", detail="low"), "http://x/a.png"),
        (image_base64_block("image/png", "AA=="), "data:image/png;base64,AA=="),
        ({"type": "image", "source": {"type": "url", "url": "http://x/b.png"}}, "http://x/b.png"),
        ({"type": "image", "source": {"type": "base64", "data": 5}}, None),
        ({"type": "image_url", "image_url": None}, None),
        (text_block("a"), None),
        ("text", None),
    ],
)
def test_the_image_of_a_block(block, source):
    assert block_to_image_src(block) == source
    content = {"messages": ["odd", {"content": "text"}, {"content": [block]}]}
    assert has_images(chat_messages_row_from_dict(content)) == (source is not None)


def test_blocks_are_written_as_the_interfaces_have_them():
    assert image_url_block("u", detail="low") == {"type": "image_url", "image_url": {"url": "u", "detail": "low"}}
    assert image_url_block("u") == {"type": "image_url", "image_url": {"url": "u"}}
    assert prompt_example_from_dict({}) == PromptExample({}, None)
