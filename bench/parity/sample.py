"""The sample: 60 tasks and groups with many families, output types, filters, metrics and numbers of examples."""

from __future__ import annotations

SHOTS = (None, 2)  # for each task one of these at random: the task's own number of examples, or two
LEAVES = 12  # a larger group is not run; its tasks are run separately
CHOICES = (
    "arc_easy arc_challenge:2 hellaswag:2 mmlu_anatomy:2 truthfulqa_mc1 truthfulqa_mc2 piqa:2 boolq:2 cola mrpc "
    "qqp cb copa multirc wsc:2 gpqa_main_zeroshot:2 leaderboard_bbh_geometric_shapes wsc273 swag sciq:2 anli_r3:2 "
    "blimp_superlative_quantifiers_2 belebele_deu_Latn:2 xnli_en xcopa_it mutual pubmedqa social_iqa commonsense_qa "
    "medmcqa crows_pairs_english ceval-valid_plant_protection ethics_utilitarianism"
)
TEXTS = (
    "gsm8k:2 gsm8k_cot gsm8k_cot_self_consistency gpqa_main_cot_zeroshot mmlu_pro_psychology "
    "bbh_cot_fewshot_navigate bbh_zeroshot_navigate wmt16-ro-en:2 nq_open:2 triviaqa:2 webqs babi anagrams1 "
    "mgsm_en_cot_zh legalbench_contract_nli_survival_of_obligations mlqa_zh_hi"
)
LIKELIHOODS = "lambada_openai:2 lambada_openai_cloze_yaml:2 asdiv arithmetic_1dc:2 wikitext c4"
CLASSES = "swde squad_completion"  # tasks that are Python classes; others need the network or more libraries
GROUPS = "arab_culture_gulf:2 haerae csatqa"


Wanted = tuple[str, int | None]
"""A task, and its number of few-shot examples; None for the task's own number."""


def wanted(text: str) -> Wanted:
    """A task's name, and the number of examples after a colon.

    >>> wanted("gsm8k:2"), wanted("cola")
    (('gsm8k', 2), ('cola', None))
    """
    name, _, shots = text.partition(":")
    return name, int(shots) if shots else None


SAMPLE = [wanted(one) for one in f"{CHOICES} {TEXTS} {LIKELIHOODS} {CLASSES} {GROUPS}".split()]
