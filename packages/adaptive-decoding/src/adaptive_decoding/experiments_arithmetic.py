"""Word problems with one step of arithmetic, made from templates in the form of MultiArith (Section 4, reasoning)."""

import re

from offprints.seeding import rng

from adaptive_decoding.data import Question
from adaptive_decoding.experiments import EVERY, Metrics, label
from adaptive_decoding.experiments_models import bench
from adaptive_decoding.reasoning import evaluate_reasoning

NAMES = ("Tom", "Mia", "Sam", "Eva", "Leo", "Zoe", "Max", "Ida")
THINGS = ("apples", "books", "coins", "cards", "shells", "stamps", "marbles", "stickers")
SHOTS = (
    "Question: Ann has 5 pens. Ann buys 3 more pens. How many pens does Ann have now?\n"
    "Answer: Ann has 5 + 3 = 8 pens. The answer is 8.\n\n"
    "Question: Ben has 9 cakes. Ben gives away 4 of them. How many cakes are left?\n"
    "Answer: There are 9 - 4 = 5 cakes left. The answer is 5.\n\n"
    "Question: There are 4 bags with 6 balls in each. How many balls are there in total?\n"
    "Answer: There are 4 * 6 = 24 balls. The answer is 24.\n\n"
    "Question: {question}\nAnswer:"
)
FIRST = re.compile(r"\A(?:.|\n)*?answer is:?\s*\$?(-?[\d,]*\d)")


def problems(seed: int, count: int) -> list[Question]:
    """Sums, differences and products of small numbers, told as stories."""
    gen, found = rng(seed), []
    for i in range(count):
        name, thing = gen.choice(NAMES), gen.choice(THINGS)
        a, b, c = (int(gen.integers(low, high)) for low, high in ((11, 60), (2, 10), (2, 10)))
        stories = (
            (f"{name} has {a} {thing}. {name} buys {b} more {thing}. How many {thing} does {name} have now?", a + b),
            (f"{name} has {a} {thing}. {name} gives away {b} of them. How many {thing} are left?", a - b),
            (f"There are {b} boxes with {c} {thing} in each. How many {thing} are there in total?", b * c),
        )
        text, answer = stories[i % 3]
        found.append(Question(text, str(answer)))
    return found


def accuracy(seed: int, model: str, items: int, steps: int, batch: int, resamples: int) -> Metrics:
    """Share of right answers of every decoder on the same problems with the same random numbers."""
    here = bench(model)
    questions = problems(seed, items)
    found: Metrics = {"items": float(items)}
    for decoder in EVERY:
        report = evaluate_reasoning(
            here.model, here.tokenizer, questions, decoder, FIRST,
            template=SHOTS, max_new_tokens=steps, seed=seed, batch_size=batch, resamples=resamples,
        )  # fmt: skip
        name = label(decoder)
        found[name], found[f"hits_{name}"] = report.accuracy, float(sum(item.right for item in report.items))
        found[f"low_{name}"], found[f"high_{name}"] = report.interval
    return found
