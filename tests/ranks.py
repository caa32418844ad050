"""What each of two processes does in tests; it leaves what it found in its folder."""

import shutil
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

import cclp
from cclp.methods import METHODS, make_methods
from cclp.methods.anchors import Anchors
from cclp.nets import Net, mlp
from cclp.pseudo_labels import search
from cclp.pseudo_labels.graph import LabelGraph
from cclp.pseudo_labels.leave_one_out import LeaveOneOut
from cclp.pseudo_labels.share import Share
from cclp.runs.start import train
from cclp.training import machine, processes
from cclp.training.evaluation import run_net
from cclp.training.machine import make_fabric
from cclp.training.objective import Objective
from cclp.training.processes import WorkerDied, any_rank, launched, local_rank_zero_first, rank
from tests import children
from tests.pseudo_labels import drawings
from tests.runs import tiny_config

CLASSES = 3
UNEQUAL = ((6, 9), (4, 5))  # labeled and unlabeled samples of each process
EQUAL = ((6, 9), (6, 9))
LOSSES: dict[str, Callable[..., cclp.CCLPLoss]] = {
    "default": cclp.CCLPLoss,
    "learned bandwidth": lambda *a, **k: cclp.CCLPLoss(
        *a, similarity="euclidean", learn_bandwidth=True, **k
    ),
    "symmetric, by pairs": lambda *a, **k: cclp.CCLPLoss(
        *a, propagation="symmetric", normalization="pairs", **k
    ),
    "released": cclp.CCLPLoss.as_released,
    "sparse": lambda *a, **k: cclp.CCLPLoss(*a, neighbours=5, **k),
}


class Samples:
    """Of one process, or (``of`` is None) of both."""

    def __init__(self, of: int | None, sizes: tuple[tuple[int, int], ...] = UNEQUAL) -> None:
        draw = torch.Generator().manual_seed(0)
        parts = []
        for labeled, unlabeled in sizes:
            x = torch.randn(labeled + unlabeled, 5, generator=draw, dtype=torch.float64)
            y = torch.arange(labeled) % CLASSES
            prior = torch.rand(unlabeled, CLASSES, generator=draw, dtype=torch.float64) + 0.1
            parts.append((x[:labeled], y, x[labeled:], prior / prior.sum(1, keepdim=True)))
        chosen = parts if of is None else [parts[of]]
        self.x, self.y, self.unlabeled, self.prior = (torch.cat(p) for p in zip(*chosen))  # noqa: B905


class Model(nn.Module):
    """A user's own: a network and the loss, in one forward pass."""

    def __init__(self, loss: cclp.CCLPLoss) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.net = nn.Sequential(nn.Linear(5, 8), nn.Tanh(), nn.Linear(8, 4))
        self.loss = loss
        self.double()

    def forward(self, samples: Samples, prior: bool) -> Tensor:
        given = (samples.prior, 0.3) if prior else ()
        loss: Tensor = self.loss(
            self.net(samples.x), samples.y, self.net(samples.unlabeled), *given
        )
        return loss


def loss_and_gradients(
    name: str, gather: bool, of: int | None, wrap: Callable[[nn.Module], nn.Module]
) -> dict[str, Tensor]:
    """Of a user's own loop with this loss."""
    model = Model(LOSSES[name](CLASSES, gather=gather))
    wrapped = wrap(model)  # DDP averages as long as somebody holds it
    loss = wrapped(Samples(of), prior=name == "default")
    loss.backward()
    found = {n: p.grad for n, p in model.named_parameters() if p.grad is not None}
    return {"loss": loss.detach(), **found}


def losses() -> dict[Any, Any]:
    """Every loss in a DDP loop that knows nothing of our trainer, gathered and not."""
    dist.init_process_group("gloo")
    found: dict[Any, Any] = {
        (name, gather): loss_and_gradients(name, gather, dist.get_rank(), DistributedDataParallel)
        for name in LOSSES
        for gather in (True, False)
    }
    found["objective"] = terms_and_gradients(dist.get_rank(), DistributedDataParallel)
    anchors = Anchors(CLASSES, 2)
    anchors.update(torch.full((1, 2), 7.0 + dist.get_rank()), torch.tensor([dist.get_rank()]))
    found["anchors"] = anchors.state_dict()
    return found


def plain_net() -> Net:
    """Without batch norm and without noise: what a sample gives depends on it alone."""
    features = nn.Sequential(nn.Linear(5, 8), nn.Tanh(), nn.Linear(8, 4))
    return Net(features, 4, CLASSES, dropout=0.0)


def terms_and_gradients(
    of: int | None, wrap: Callable[[nn.Module], nn.Module]
) -> dict[str, Tensor]:
    """Of a step of the trainer's own module with ``--graph global``, in float64."""
    torch.manual_seed(0)
    methods = make_methods("cclp", CLASSES, {"cclp": {"gather": True}})
    objective = Objective(nn.Identity(), plain_net(), methods).double()
    samples = Samples(of, EQUAL)
    wrapped = wrap(objective)
    terms, *_ = wrapped(samples.x, samples.y, samples.unlabeled, 0.0)
    torch.autograd.backward(torch.stack(list(terms.values())).sum())
    found = {n: p.grad for n, p in objective.named_parameters() if p.grad is not None}
    return {"loss": terms["cclp"].detach(), **found}


def points() -> NDArray[np.float32]:
    """To evaluate: an odd number."""
    return np.random.default_rng(0).normal(size=(11, 5)).astype(np.float32)


def evaluation() -> dict[str, Any]:
    """Fabric's own: evaluation, agreement, who goes first."""
    fabric = make_fabric("cpu", "32", devices=2)
    found: dict[str, Any] = {}
    with launched(fabric):
        torch.manual_seed(0)
        objective = Objective(nn.Identity(), mlp(5, CLASSES), [])
        torch.manual_seed(rank())
        for buffer in objective.buffers():  # as after different batches
            if buffer.is_floating_point():
                buffer.add_(torch.rand(buffer.shape))
        x = points()
        found["all"] = run_net(fabric, objective, x)
        found["some"] = run_net(fabric, objective, x, np.array([7, 3, 3]))
        found["one"] = run_net(fabric, objective, x[:1])
        found["state"] = objective.state_dict()
        found["anyone"] = any_rank(fabric, rank() == 1)
        found["nobody"] = any_rank(fabric, False)
        marker = Path("marker")

        def visit() -> bool:
            was_there = marker.exists()
            marker.touch()
            return was_there

        found["second"] = local_rank_zero_first(fabric, visit)
    return found


def graphs(share: Share, folder: Path) -> dict[str, Any]:
    """Neighbours and propagated labels of vectors, of very many, of images, and where few are."""
    rng = np.random.default_rng(0)
    y = rng.integers(CLASSES, size=301)
    vectors = (3 * np.eye(CLASSES, 8)[y] + rng.normal(size=(301, 8))).astype(np.float32)
    labels = np.where(np.arange(301) < 12, y, -1)
    images = drawings(45)
    some = np.where(np.arange(45) < 12, np.arange(45) % CLASSES, -1)
    cache = folder / f"cache-{share.rank}"
    found: dict[str, Any] = {}
    for name, x, given, most in (
        ("vectors", vectors, labels, search.MOST_EXACT),
        ("approximate", vectors, labels, 100),
        ("images", images, some, search.MOST_EXACT),
        ("one label", vectors, np.where(np.arange(301) == 0, 0, -1), search.MOST_EXACT),
        ("a pair", vectors[:2], np.array([0, -1]), search.MOST_EXACT),
    ):
        search.MOST_EXACT = most
        graph = LabelGraph(x, given, CLASSES, cache, share=share)
        assert graph.neighbours.W is not None
        found[name] = {
            "W": torch.from_numpy(graph.neighbours.W.toarray()),
            "classes": graph.propagate().argmax(1).tolist(),
            "left out": [part.tolist() for part in graph.left_out],
            "shares": graph.shares.tolist(),
        }
    return found


def prepared() -> dict[str, Any]:
    """The same, divided between two processes; then only one of them has a cache."""
    dist.init_process_group("gloo")
    share = Share(dist.get_rank(), 2)
    found = {"first": graphs(share, Path())}
    if share.rank == 1:
        shutil.rmtree("cache-1")
    return {**found, "again": graphs(share, Path())}


def methods() -> dict[str, Any]:
    """A few steps of every method; each process is told of a directory of its own."""
    found = {}
    for name in (*METHODS, "cclp+vat"):
        config = tiny_config(max_steps=2, method=name, devices=2, evaluate_every=2)
        found[name] = train(config, Path(f"{name}-{rank()}"))["error"]
    # A supervised warm-up, and none: as process 0 finds; a generator has nothing to do in one.
    for correct, beside in ((30, "cclp"), (95, "cclp"), (31, "improved_gan")):
        config = tiny_config(
            max_steps=4,
            devices=2,
            evaluate_every=2,
            method=f"{beside}+graph_pseudo_label",
            settings={"graph_pseudo_label": {"refreshes": 1, "supervised_warmup": 0.5}},
            class_prior="equal",  # then the graph is not joined by a committee
        )
        accuracy = LeaveOneOut(correct, 100)
        setattr(LabelGraph, "leave_one_out", lambda _, found=accuracy: found)  # noqa: B010
        name = f"{correct} correct"
        found[name] = train(config, Path(f"{name}-{rank()}"))["error"]
    config = tiny_config(max_steps=2, method="cclp", devices=2, evaluate_every=2, graph="global")
    found["global"] = train(config, Path(f"global-{rank()}"))["error"]
    config = tiny_config(max_steps=4, method="cclp", devices=2, evaluate_every=2, labeled_batch=4)
    found["absent"] = train(config, Path(f"absent-{rank()}"))["error"]
    config = replace(config, graph="global")
    found["absent, global"] = train(config, Path(f"absent, global-{rank()}"))["error"]
    return found


def silent() -> str:
    """Process 1 does not answer; what process 0 says then."""
    processes.PATIENCE = timedelta(seconds=1)
    try:
        with launched(make_fabric("cpu", "32", devices=2)):
            if rank() == 1:
                children.wait_until(Path("said").exists)
            else:
                dist.barrier()
    except WorkerDied as error:
        Path("said").touch()
        return str(error)
    return ""


def alone() -> str:
    """What a process says if the others never come."""
    setattr(machine, "RENDEZVOUS", timedelta(seconds=1))  # noqa: B010
    try:
        with launched(make_fabric("cpu", "32", devices=2)):
            return ""
    except WorkerDied as error:
        return str(error)


def main(names: list[str]) -> None:
    """Call functions of this module; what each returns becomes ``NAME-RANK.pt``."""
    for name in names:
        torch.save(globals()[name](), f"{name}-{rank()}.pt")
