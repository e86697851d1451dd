"""Sizes and arguments of a model runner that cannot be are refused in a sentence."""

from typing import Any

import pytest
from helpers_model_runner import runner, tiny_model

from encgraph.model_runner.prompts import Prompt


@pytest.fixture(scope="module")
def model() -> Any:
    return tiny_model()


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"length": 0}, "length must be at least 1, got 0"),
        ({"length": 10**9}, "length must be at most 10,000,000, got 1000000000"),
        ({"cache_bytes": "x"}, "cache_bytes must be a whole number of at least 0, got 'x'"),
        ({"batch_sizes": ()}, r"batch_sizes must be at least one whole number, got \(\); give"),
        ({"batch_sizes": 4}, "batch_sizes must be at least one whole number, got 4; give"),
        ({"batch_sizes": (0,)}, "each of batch_sizes must be at least 1, got 0"),
        ({"batch_sizes": (1, 2.5)}, "each of batch_sizes must be a whole number of at least 1"),
        ({"backend": "tpu"}, "backend must be one of .*got 'tpu'"),
        ({"attention": "bogus"}, "attention must be .*got 'bogus'"),
        ({"slot": "nope"}, "slot must be an adapter of the model, got 'nope'"),
    ],
)
def test_options_that_cannot_be_are_named(model: Any, given: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        runner(model, options=given)


def test_what_is_no_batch_or_number_of_tokens_is_named(model: Any) -> None:
    prompt = Prompt(token_ids=(1, 2))
    with runner(model) as made:
        with pytest.raises(ValueError, match="a batch must be a list of prompts, got Prompt"):
            made.generate(prompt, new_tokens=1)
        with pytest.raises(ValueError, match="prompt 0 must be a Prompt, got tuple"):
            made.generate([(1, 2)], new_tokens=1)
        with pytest.raises(ValueError, match="new_tokens must be a whole number of at least 1"):
            made.generate([prompt], new_tokens=1.5)
        with pytest.raises(ValueError, match="each of batch_sizes must be a whole number"):
            made.capture(batch_sizes=(1, "2"))
