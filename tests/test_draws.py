"""A training draws from generators of its own: other threads cannot disturb it."""

import random
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from sklearn.datasets import load_digits
from torch import Tensor, nn

from cclp import draws
from cclp.nets import Net, cifar_net, mlp, mnist_net, small_net, svhn_net
from cclp.runs.start import train
from cclp.sklearn import CCLPClassifier
from tests.runs import tiny_config

X, TRUTH = (array[:120] for array in load_digits(return_X_y=True))
Y = np.where(np.arange(120) < 40, TRUTH, -1)


@contextmanager
def others_drawing() -> Iterator[None]:
    """Another thread draws from the global generators, and seeds them, as fast as it can."""
    done = threading.Event()
    drawn = threading.Event()

    def draw() -> None:
        while not done.is_set():
            torch.rand(3)
            np.random.rand()
            random.random()
            torch.manual_seed(7)
            drawn.set()

    thread = threading.Thread(target=draw)
    thread.start()
    try:
        assert drawn.wait(10)
        yield
    finally:
        done.set()
        thread.join()


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"method": "vat"},
        {"method": "fixmatch"},
        {"method": "mean_teacher"},
        {"net": "cnn", "image_shape": (8, 8)},
        {"net": "cnn", "image_shape": (8, 8), "method": "cclp+fixmatch"},
    ],
)
def test_a_fit_is_the_same_whatever_other_threads_draw(settings: dict[str, Any]) -> None:
    def weights() -> dict[str, Tensor]:
        model = CCLPClassifier(max_iter=8, batch_size=(2, 40), random_state=0, **settings)
        return dict(model.fit(X, Y).module_.state_dict())

    alone = weights()
    with others_drawing():
        disturbed = weights()
    torch.testing.assert_close(disturbed, alone, rtol=0, atol=0)


def test_a_run_is_the_same_whatever_other_threads_draw(tmp_path: Path) -> None:
    def state(folder: Path) -> dict[str, Tensor]:
        train(tiny_config(max_steps=6), folder)
        return load_file(max((folder / "checkpoint").glob("*.safetensors")))

    alone = state(tmp_path / "alone")
    with others_drawing():
        disturbed = state(tmp_path / "disturbed")
    torch.testing.assert_close(disturbed, alone, rtol=0, atol=0)


def twice(draw: Callable[[], Any]) -> tuple[Any, Any]:
    """From torch's global generator and from an own one, both with the same seed."""
    draws.seed_generators(3)
    usual = draw()
    with draws.own_generator():
        draws.seed_generators(3)
        torch.manual_seed(9)
        return usual, draw()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("layer", [draws.Dropout(0.3), draws.Dropout2d(0.3), draws.Dropout(0.0)])
def test_numbers_are_those_of_torch(layer: nn.Module, dtype: torch.dtype) -> None:
    x = torch.ones(4, 5, 6, 7, dtype=dtype).contiguous(memory_format=torch.channels_last)
    x.requires_grad_()
    usual, own = twice(lambda: (layer(x), draws.randn_like(x), draws.rand_like(x)))
    torch.testing.assert_close(own, usual, rtol=0, atol=0)
    assert own[0].stride() == usual[0].stride()
    gradients = [torch.autograd.grad(y.sum(), x)[0] for y in (own[0], usual[0])]
    assert torch.equal(*gradients)


def test_other_numbers_are_those_of_torch() -> None:
    cpu = torch.device("cpu")
    usual, own = twice(lambda: (draws.rand(3, device=cpu), draws.randint(9, (4, 1), cpu)))
    torch.testing.assert_close(own, usual, rtol=0, atol=0)


@pytest.mark.parametrize("make", [mnist_net, svhn_net, cifar_net, small_net, lambda: mlp(6, 3)])
def test_networks_begin_with_the_same_weights(make: Callable[[], Net]) -> None:
    def weights() -> dict[str, Tensor]:
        with draws.OwnInitialization():
            return dict(make().state_dict())

    usual, own = twice(weights)
    torch.testing.assert_close(own, usual, rtol=0, atol=0)


def test_seeds_within_are_forgotten_afterwards() -> None:
    cpu = torch.device("cpu")

    def draw() -> list[float]:
        def some() -> float:
            return float(draws.rand(1, device=cpu))

        found = [some()]
        for _ in range(2):
            with draws.seeded_generators(5, cpu):
                found.append(some())
        return [*found, some()]

    usual, own = twice(draw)
    assert own == usual
    assert len(set(own)) == 3


def test_code_of_others_gets_other_numbers() -> None:
    """A user's own network draws from the global generator, seeded for each step too."""
    with draws.own_generator():
        draws.seed_generators(3)
        ours, theirs = draws.rand(4, device=torch.device("cpu")), torch.rand(4)
        draws.seed_generators(3)
        assert torch.equal(torch.rand(4), theirs)
    assert not set(ours.tolist()) & set(theirs.tolist())


def test_other_threads_have_no_part_in_it() -> None:
    found: list[Any] = []
    with draws.own_generator():
        thread = threading.Thread(
            target=lambda: found.append(draws.generator_for(torch.device("cpu")))
        )
        thread.start()
        thread.join()
        assert draws.generator_for(torch.device("cpu")) is not None
    assert found == [None]
    assert draws.generator_for(torch.device("cpu")) is None
