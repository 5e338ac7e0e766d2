"""Prompts: turns, delimiters, beginnings of answers, examples, chats."""

from __future__ import annotations

from dataclasses import replace

import pytest
from golden.lm_eval_own.ported import ported
from systems.lm_eval.tasks.given import config, task

from calipers.errors import InputError
from calipers.systems.lm_eval.tasks.loaded import example_turns, joined, requests, turns
from calipers.systems.lm_eval.tasks.prompts import PLAIN, ChatTurn, Manner, prompt

FILE = "test_fewshot_context.py"
ONE_TURN = Manner(chat=True, multiturn=False)
TURNS = Manner(chat=True)


def said(role, content):
    return {"role": role, "content": content}


U, A, S = (lambda content, role=role: said(role, content) for role in ("user", "assistant", "system"))


@ported(
    FILE,
    "turn, manner, expected",
    {
        "TestMessage::test_to_dict_excludes_private_fields": [(ChatTurn("user", "Hello", "\n\n"), TURNS, [U("Hello")])],
        "TestMessage::test_to_text_appends_delimiter": [(ChatTurn("user", "Hello", "\n\n"), PLAIN, "Hello\n\n")],
        "TestMessage::test_to_text_empty_delimiter": [(ChatTurn("assistant", "Answer"), PLAIN, "Answer")],
    },
)
def test_one_turn(turn, manner, expected):
    assert prompt([turn], manner) == expected


PARTED = "TestMaybeDelimit::test_"


@ported(
    FILE,
    "left, right, delimiter, expected",
    {
        f"{PARTED}both_present_no_whitespace": [("prefix", "suffix", " ", "prefix suffix")],
        f"{PARTED}prefix_ends_with_space": [("prefix ", "suffix", "SPACE", "prefix suffix")],
        f"{PARTED}suffix_starts_with_space": [("prefix", " suffix", "DELIM", "prefix suffix")],
        f"{PARTED}both_have_whitespace": [("prefix ", " suffix", "X", "prefix  suffix")],
        f"{PARTED}prefix_only": [("prefix", None, " ", "prefix"), ("prefix", "", " ", "prefix")],
        f"{PARTED}suffix_only": [(None, "suffix", " ", "suffix"), ("", "suffix", " ", "suffix")],
        f"{PARTED}both_empty": [(None, None, " ", ""), ("", "", " ", "")],
        f"{PARTED}custom_delimiter": [("a", "b", "---", "a---b")],
    },
)
def test_two_texts_are_parted_once(left, right, delimiter, expected):
    assert joined(left, right, delimiter) == expected


SINGLE = "TestMultiturnToSingleturn::test_"
Q1A1 = [ChatTurn("user", "Q1", " "), ChatTurn("assistant", "A1", "\n\n")]


@ported(
    FILE,
    "held, manner, expected",
    {
        f"{SINGLE}collapses_user_messages": [([*Q1A1, ChatTurn("user", "Q2")], ONE_TURN, [U("Q1 A1\n\nQ2")])],
        f"{SINGLE}preserves_final_assistant": [
            (
                [*Q1A1, ChatTurn("user", "Q2", " "), ChatTurn("assistant", "Final")],
                ONE_TURN,
                [U("Q1 A1\n\nQ2"), A("Final")],
            )
        ],
        f"{SINGLE}preserves_system_message": [
            (
                [ChatTurn("system", "You are helpful"), ChatTurn("user", "Question")],
                ONE_TURN,
                [S("You are helpful"), U("Question")],
            )
        ],
        f"{SINGLE}system_with_assistant_ending": [
            (
                [ChatTurn("system", "System"), ChatTurn("user", "Q", " "), ChatTurn("assistant", "A")],
                ONE_TURN,
                [S("System"), U("Q"), A("A")],
            )
        ],
        "TestChatTemplateFormat::test_messages_to_dict_list": [
            (
                [ChatTurn("system", "Be helpful"), ChatTurn("user", "Question"), ChatTurn("assistant", "Answer")],
                TURNS,
                [S("Be helpful"), U("Question"), A("Answer")],
            )
        ],
        "TestChatTemplateFormat::test_singleturn_collapse_for_chat": [
            ([ChatTurn("system", "System"), *Q1A1, ChatTurn("user", "Q2")], ONE_TURN, [S("System"), U("Q1 A1\n\nQ2")])
        ],
    },
)
def test_turns_of_a_chat(held, manner, expected):
    assert prompt(held, manner) == expected


QA = "TestBuildQaTurn::test_"
FRUIT = ["Apple", "Banana", "Cherry"]
LETTERS = ["A", "B", "C", "D"]


def example(doc, prefix, delimiter, ending):
    """A document as an example: its turns, and what parts the first from the second."""
    choices = {"doc_to_choice": "c"} if "c" in doc else {}
    fields = {"gen_prefix": prefix, "target_delimiter": delimiter, "fewshot_delimiter": ending, **choices}
    return example_turns(task([doc], output_type="loglikelihood", **fields), doc)


@ported(
    FILE,
    "doc, prefix, delimiters, contents, text",
    {
        f"{QA}basic_qa_format": [
            ({"q": "Question?", "a": "Answer"}, None, (" ", "\n\n"), ["Question?", "Answer"], "Question? Answer\n\n")
        ],
        f"{QA}choice_with_int_answer": [
            (
                {"q": "Pick one:", "c": FRUIT, "a": 1},
                None,
                (" ", "\n\n"),
                ["Pick one:", "Banana"],
                "Pick one: Banana\n\n",
            )
        ],
        f"{QA}answer_as_string_directly": [
            ({"q": "What is 2+2?", "a": "4"}, None, (" ", "\n\n"), ["What is 2+2?", "4"], "What is 2+2? 4\n\n")
        ],
        f"{QA}answer_as_list": [
            ({"q": "Question?", "a": ["first", "second"]}, None, (" ", ""), ["Question?", "first"], "Question? first")
        ],
        f"{QA}gen_prefix_with_answer": [
            (
                {"q": "Question?", "a": "Answer"},
                "Think:",
                (" ", "\n\n"),
                ["Question?", "Think: Answer"],
                "Question? Think: Answer\n\n",
            )
        ],
        f"{QA}gen_prefix_spacing_added_when_needed": [
            ({"q": "Q", "a": "Answer"}, "Prefix:", (" ", ""), ["Q", "Prefix: Answer"], "Q Prefix: Answer")
        ],
        f"{QA}gen_prefix_no_extra_space_when_prefix_has_trailing": [
            ({"q": "Q", "a": "Answer"}, "Prefix: ", (" ", ""), ["Q", "Prefix: Answer"], "Q Prefix: Answer")
        ],
        f"{QA}gen_prefix_no_extra_space_when_answer_has_leading": [
            ({"q": "Q", "a": " Answer"}, "Prefix:", (" ", ""), ["Q", "Prefix: Answer"], "Q Prefix: Answer")
        ],
        f"{QA}custom_delimiters": [({"q": "Q", "a": "A"}, None, ("->", "||"), ["Q", "A"], "Q->A||")],
        f"{QA}empty_delimiters": [({"q": "Q", "a": "A"}, None, ("", ""), ["Q", "A"], "QA")],
        f"{QA}whitespace_delimiter_matrix": [
            ({"q": "Q", "a": "A"}, None, ("X", ""), ["Q", "A"], "QXA"),
            ({"q": "Q", "a": "A"}, "P", ("X", ""), ["Q", "P A"], "QXP A"),
            ({"q": "Q\n", "a": "A"}, "P", ("X", ""), ["Q\n", "P A"], "Q\nP A"),
            ({"q": "Q", "a": "A"}, "P\n", ("X", ""), ["Q", "P\nA"], "QXP\nA"),
            ({"q": "Q", "a": "\nA"}, "P", ("X", ""), ["Q", "P\nA"], "QXP\nA"),
        ],
        f"{QA}answer_index_zero_uses_delimiter": [
            ({"q": "Question?", "c": LETTERS, "a": 0}, None, (" ", "\n\n"), ["Question?", "A"], "Question? A\n\n")
        ],
        f"{QA}answer_index_nonzero_uses_delimiter": [
            ({"q": "Question?", "c": LETTERS, "a": 2}, None, (" ", "\n\n"), ["Question?", "C"], "Question? C\n\n")
        ],
    },
)
def test_an_example(doc, prefix, delimiters, contents, text):
    found = example(doc, prefix, *delimiters)
    assert [(one.role, one.content) for one in found] == list(zip(["user", "assistant"], contents, strict=True))
    assert prompt(found, PLAIN) == text


@ported(
    FILE,
    "question, prefix, delimiter, contents, text",
    {
        f"{QA}no_answer_format": [("Question?", None, " ", ["Question?"], "Question?")],
        f"{QA}gen_prefix_without_answer": [
            ("Question?", "Let me think", " ", ["Question?", "Let me think"], "Question? Let me think")
        ],
        f"{QA}gen_prefix_without_answer_preserves_content": [
            ("Q", "The answer is:", " ", ["Q", "The answer is:"], "Q The answer is:")
        ],
        f"{QA}gen_prefix_with_trailing_space_without_answer": [("Q", "Answer: ", " ", ["Q", "Answer: "], "Q Answer: ")],
    },
)
def test_a_question(question, prefix, delimiter, contents, text):
    _check_question(question, prefix, delimiter, contents, text)


@ported(
    FILE,
    "question, prefix, contents, text",
    {
        f"{QA}whitespace_delimiter_matrix": [
            ("Q", None, ["Q"], "Q"),
            ("Q", "P", ["Q", "P"], "QXP"),
            ("Q", "\nP", ["Q", "\nP"], "Q\nP"),
        ]
    },
    first=5,
)
def test_a_question_and_blanks(question, prefix, contents, text):
    _check_question(question, prefix, "X", contents, text)


def _check_question(question, prefix, delimiter, contents, text):
    found = turns(task(), question, None, prefix, delimiter)
    assert [(one.role, one.content) for one in found] == list(zip(["user", "assistant"], contents, strict=False))
    assert len(found) == len(contents)
    assert prompt(found, PLAIN) == text


@ported(FILE, "question", {f"{QA}raises_on_non_string_question": [(123,)]})
def test_a_question_that_is_no_text_is_refused(question):
    with pytest.raises(InputError, match=f"doc_to_text: is {question}; expected a text"):
        turns(task(), question, "A", None, " ")


CONTEXT = "TestFewshotContext::test_"
Q1, Q2, Q3 = ({"q": f"Q{number}", "a": f"A{number}"} for number in (1, 2, 3))
FIRST = {"fewshot_split": "train", "fewshot_config": {"sampler": "first_n"}}
CHOICES = {"output_type": "multiple_choice", "doc_to_choice": "c"}
BE_HELPFUL = "Be helpful."
MATHS = "Answer math questions.\n"


def contexts(doc, examples, fields, manner=PLAIN):
    made = task([doc], examples, **{**FIRST, **fields}, num_fewshot=len(examples))
    return [one.args[0] for one in requests(replace(made, manner=manner))]


@ported(
    FILE,
    "doc, examples, fields, manner, expected",
    {
        f"{CONTEXT}zero_shot_format": [
            ({"q": "What is the capital of France?", "a": "Paris"}, [], {}, PLAIN, "What is the capital of France?")
        ],
        f"{CONTEXT}one_shot_format": [
            (
                {"q": "What is 2+2?", "a": "4"},
                [{"q": "What is 1+1?", "a": "2"}],
                {},
                PLAIN,
                "What is 1+1? 2\n\nWhat is 2+2?",
            )
        ],
        f"{CONTEXT}two_shot_format": [(Q3, [Q1, Q2], {}, PLAIN, "Q1 A1\n\nQ2 A2\n\nQ3")],
        f"{CONTEXT}with_system_instruction": [(Q1, [], {}, Manner(system="Be helpful.\n"), "Be helpful.\nQ1")],
        f"{CONTEXT}with_description": [(Q1, [], {"description": MATHS}, PLAIN, "Answer math questions.\nQ1")],
        f"{CONTEXT}system_instruction_and_description": [
            (
                Q1,
                [],
                {"description": MATHS},
                Manner(system=BE_HELPFUL),
                "Be helpful.\n\nAnswer math questions.\nQ1",
            )
        ],
        f"{CONTEXT}with_choices": [
            (
                {"q": "Pick a fruit:", "a": 1, "c": ["Apple", "Banana"]},
                [{"q": "Pick:", "a": 0, "c": ["A", "B"]}],
                CHOICES,
                PLAIN,
                "Pick: A\n\nPick a fruit:",
            )
        ],
        f"{CONTEXT}custom_delimiters": [
            (Q2, [Q1], {"target_delimiter": "->", "fewshot_delimiter": "||"}, PLAIN, "Q1->A1||Q2")
        ],
        f"{CONTEXT}gen_prefix_in_fewshot": [
            (Q2, [Q1], {"gen_prefix": "Answer:"}, PLAIN, "Q1 Answer: A1\n\nQ2 Answer:")
        ],
        f"{CONTEXT}fewshot_gen_prefix_resolved_against_fewshot_doc": [
            (
                {**Q2, "gen_prefix": "Eval prefix:"},
                [{**Q1, "gen_prefix": "Shot prefix:"}],
                {"gen_prefix": "gen_prefix"},
                PLAIN,
                "Q1 Shot prefix: A1\n\nQ2 Eval prefix:",
            )
        ],
        f"{CONTEXT}fewshot_gen_prefix_template_resolved_against_fewshot_doc": [
            (
                {**Q2, "prompt": "def evaluated():"},
                [{**Q1, "prompt": "def shot():"}],
                {"gen_prefix": "Code:\n{{ prompt }}\n"},
                PLAIN,
                "Q1 Code:\ndef shot():\nA1\n\nQ2 Code:\ndef evaluated():\n",
            )
        ],
        f"{CONTEXT}chat_template_multiturn": [(Q2, [Q1], {}, TURNS, [U("Q1"), A("A1"), U("Q2")])],
        f"{CONTEXT}chat_template_singleturn": [(Q2, [Q1], {}, ONE_TURN, [U("Q1 A1\n\nQ2")])],
        f"{CONTEXT}sampler_no_exclusion_when_different_split": [
            (Q1, [Q1], {"fewshot_config": {}}, PLAIN, "Q1 A1\n\nQ1")
        ],
    },
)
def test_the_prompt_of_a_document(doc, examples, fields, manner, expected):
    assert set(map(repr, contexts(doc, examples, fields, manner))) == {repr(expected)}


@ported(FILE, "sampler", {f"{CONTEXT}sampler_excludes_eval_doc_when_same_split": [("default",), ("first_n",)]})
def test_a_document_is_no_example_of_itself_in_its_own_split(sampler):
    made = task([Q1, Q2, Q3], fewshot_split="test", fewshot_config={"sampler": sampler}, num_fewshot=2)
    for doc, one in zip([Q1, Q2, Q3], requests(made), strict=True):
        before = one.args[0].removesuffix(doc["q"])
        assert doc["q"] not in before
        assert before.count("\n\n") == 2


@ported(
    FILE,
    "fields, split",
    {
        "test_fewshot_config_split_precedence": [
            ({"fewshot_split": None, "fewshot_config": {"split": "train"}}, "train"),
            ({"fewshot_split": "validation", "fewshot_config": {"process_docs": None}}, "validation"),
        ]
    },
)
def test_the_split_of_the_examples(fields, split):
    assert config(task="demo", output_type="multiple_choice", **fields).fewshot_config.split == split


QUESTIONS = [
    {"question": "Which bone is longest?", "choices": ["Ulna", "Femur", "Rib", "Patella"], "answer": 1},
    {"question": "Where does bile come from?", "choices": ["Liver", "Lung", "Skin", "Spleen"], "answer": 0},
]
ASKED = {"question": "What pumps blood?", "choices": ["Eye", "Ear", "Heart", "Hand"], "answer": 2}
ABOUT = "Questions on the human body.\n\n"
MMLU = {
    "output_type": "multiple_choice",
    "description": ABOUT,
    "doc_to_text": "{{question.strip()}}\nA. {{choices[0]}}\nB. {{choices[1]}}\nC. {{choices[2]}}\n"
    "D. {{choices[3]}}\nAnswer:",
    "doc_to_choice": LETTERS,
    "doc_to_target": "answer",
}
FIRST_SHOT = "Which bone is longest?\nA. Ulna\nB. Femur\nC. Rib\nD. Patella\nAnswer:"
SECOND_SHOT = "Where does bile come from?\nA. Liver\nB. Lung\nC. Skin\nD. Spleen\nAnswer:"
LAST = "What pumps blood?\nA. Eye\nB. Ear\nC. Heart\nD. Hand\nAnswer:"
BEGUN = {"gen_prefix": "The answer is:"}


@ported(
    "test_prompt.py",
    "examples, fields, expected",
    {
        "test_mmlu_prompt_rendering": [
            ([], {}, f"{ABOUT}{LAST}"),
            (QUESTIONS, {}, f"{ABOUT}{FIRST_SHOT} B\n\n{SECOND_SHOT} A\n\n{LAST}"),
            ([], BEGUN, f"{ABOUT}{LAST} The answer is:"),
            (
                QUESTIONS,
                BEGUN,
                f"{ABOUT}{FIRST_SHOT} The answer is: B\n\n{SECOND_SHOT} The answer is: A\n\n{LAST} The answer is:",
            ),
        ]
    },
)
def test_four_choices_in_the_form_of_mmlu(examples, fields, expected):
    made = task([ASKED], examples, **{**FIRST, **MMLU, **fields}, num_fewshot=len(examples))
    found = list(requests(made))
    assert [(one.request_type, one.idx) for one in found] == [("loglikelihood", idx) for idx in range(4)]
    assert [one.args for one in found] == [(expected, f" {letter}") for letter in LETTERS]
