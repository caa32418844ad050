"""What the loss and the networks are used with: each works, and gives the same values.

Proven elsewhere: the loss by itself under ``torch.compile`` (also of any sizes), under autocast, in
low precision, with ``torch.func`` and on meta tensors in ``test_losses.py``; frames, pickles,
clones, a pipeline and a search over the estimator's own settings in ``test_sklearn.py``; several
processes in ``test_processes.py``; ``cclp export`` of a run in ``test_export.py``.
"""

from collections.abc import Callable
from copy import deepcopy
from pathlib import Path

import numpy as np
import onnxruntime
import pytest
import pytorch_lightning as pl
import torch
import torch.nn.functional as F
from sklearn.datasets import load_digits
from sklearn.decomposition import PCA
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from torch import Tensor, nn

import cclp
from cclp.nets import Net, mlp, mnist_net
from cclp.sklearn import CCLPClassifier
from examples.lightning_module import Classifier, make_loaders

torch_own = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")
REGULARISER = cclp.CCLPLoss(3)


def tiny_net(seed: int = 0) -> Net:
    torch.manual_seed(seed)
    return mlp(6, 3, hidden_sizes=[16], embedding_size=8, noise=0, dropout=0)


def batch(seed: int = 0) -> tuple[Tensor, Tensor, Tensor]:
    """Nine labeled and twelve unlabeled samples around three centres."""
    generator = torch.Generator().manual_seed(seed)
    noise = torch.randn(21, 6, generator=generator)
    centres = 2 * torch.randn(3, 6, generator=torch.Generator().manual_seed(0))
    x = centres[torch.arange(21) % 3] + noise
    return x[:9], torch.arange(9) % 3, x[9:]


def total_loss(net: Net, x_labeled: Tensor, y: Tensor, x_unlabeled: Tensor) -> Tensor:
    z_labeled, z_unlabeled = net.features(x_labeled), net.features(x_unlabeled)
    term: Tensor = REGULARISER(z_labeled, y, z_unlabeled)
    return F.cross_entropy(net.classifier(z_labeled), y) + term


Step = Callable[[Net, torch.optim.Optimizer, Tensor, Tensor, Tensor], Tensor]


def make_step(loss_of: Callable[..., Tensor]) -> Step:
    """A training step with that loss of net and batch; gives the loss."""

    def step(net: Net, optimizer: torch.optim.Optimizer, *tensors: Tensor) -> Tensor:
        optimizer.zero_grad()
        loss = loss_of(net, *tensors)
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        return loss.detach()

    return step


plain_step = make_step(total_loss)


def trained(step: Step) -> tuple[Net, list[float]]:
    """The net and the losses after four steps of that kind."""
    net = tiny_net()
    optimizer = torch.optim.SGD(net.parameters(), 0.05)
    return net, [step(net, optimizer, *batch(k)).item() for k in range(4)]


@torch_own
def test_a_compiled_step_trains_alike() -> None:
    """Network, cross entropy and CCLP in one graph."""
    torch._dynamo.reset()
    compiled = torch.compile(total_loss, fullgraph=True)
    net, losses = trained(make_step(compiled))
    expected_net, expected = trained(plain_step)
    assert losses == pytest.approx(expected, rel=1e-4)
    for value, other in zip(net.parameters(), expected_net.parameters(), strict=True):
        torch.testing.assert_close(value, other, rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_a_step_under_autocast_is_close_to_one_without(dtype: torch.dtype) -> None:
    """float16 with a gradient scaler, as it is used; the usual first scale would skip a step."""
    scaler = torch.amp.GradScaler("cpu", 1024.0, enabled=dtype == torch.float16)

    def step(
        net: Net, optimizer: torch.optim.Optimizer, x_l: Tensor, y: Tensor, x_u: Tensor
    ) -> Tensor:
        optimizer.zero_grad()
        with torch.autocast("cpu", dtype):
            assert net.classifier(net.features(x_l)).dtype == dtype
            loss = total_loss(net, x_l, y, x_u)
        assert loss.dtype == torch.float32
        scaler.scale(loss).backward()  # type: ignore[no-untyped-call]
        scaler.step(optimizer)
        scaler.update()
        return loss.detach()

    net, losses = trained(step)
    expected_net, expected = trained(plain_step)
    assert losses == pytest.approx(expected, rel=0.02)
    before, after, other = (
        nn.utils.parameters_to_vector(some.parameters()).detach()
        for some in (tiny_net(), net, expected_net)
    )
    assert torch.linalg.norm(after - other) < 0.05 * torch.linalg.norm(other - before)


class WithLoss(nn.Module):
    """Net and loss as one module, for ``functional_call``."""

    def __init__(self, net: Net) -> None:
        super().__init__()
        self.net = net

    def forward(self, *tensors: Tensor) -> Tensor:
        return total_loss(self.net, *tensors)


def test_functional_gradients_equal_those_of_autograd() -> None:
    net = tiny_net()
    total_loss(net, *batch()).backward()  # type: ignore[no-untyped-call]
    module = WithLoss(tiny_net())

    def loss(parameters: dict[str, Tensor], buffers: dict[str, Tensor]) -> Tensor:
        found: Tensor = torch.func.functional_call(module, (parameters, buffers), batch())
        return found

    gradients = torch.func.grad(loss)(
        {name: value.detach() for name, value in module.named_parameters()},
        {name: value.clone() for name, value in module.named_buffers()},
    )
    for name, value in net.named_parameters():
        assert value.grad is not None
        torch.testing.assert_close(gradients[f"net.{name}"], value.grad, rtol=1e-5, atol=1e-7)


@pytest.mark.filterwarnings("ignore::FutureWarning", "ignore:.*many workers", "ignore:.*treespec")
def test_lightning_trains_saves_and_loads(tmp_path: Path) -> None:
    """The example's module, in mixed precision."""
    torch.manual_seed(0)
    module = Classifier(weight=0.5)
    before = deepcopy(module.net.state_dict())
    trainer = pl.Trainer(
        default_root_dir=tmp_path,
        max_steps=3,
        precision="bf16-mixed",
        accelerator="cpu",
        logger=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    train, test = make_loaders(seed=0)
    trainer.fit(module, train)
    assert trainer.global_step == 3
    assert 0 < float(trainer.callback_metrics["loss"]) < 20
    assert any(
        not torch.equal(value, before[name]) for name, value in module.net.named_parameters()
    )
    trainer.save_checkpoint(tmp_path / "module.ckpt")
    loaded = Classifier.load_from_checkpoint(tmp_path / "module.ckpt", weights_only=True)
    assert loaded.regulariser.weight == 0.5
    ((x, _),) = test
    torch.testing.assert_close(loaded.eval().net(x), module.eval().net(x), rtol=0, atol=0)


def test_a_search_over_the_steps_of_a_pipeline() -> None:
    X, truth = load_digits(n_class=3, return_X_y=True)
    X, truth = X[:240], truth[:240]
    y = np.where(np.arange(len(truth)) % 3, -1, truth)
    pipeline = make_pipeline(PCA(random_state=0), CCLPClassifier(max_iter=10, random_state=0))
    grid = {"pca__n_components": [2, 20], "cclpclassifier__method": ["supervised", "cclp"]}
    search = GridSearchCV(pipeline, grid, cv=2).fit(X, y)
    assert len(search.cv_results_["mean_test_score"]) == 4
    assert search.best_params_["pca__n_components"] == 20
    assert search.score(X, truth) > 0.9


NETS: dict[str, tuple[Callable[[], Net], tuple[int, ...]]] = {
    "mlp": (lambda: mlp(12, 3, hidden_sizes=[8], embedding_size=4), (12,)),
    "mnist": (lambda: mnist_net(3, width=2), (1, 12, 16)),
}


def classifier(name: str) -> tuple[Net, tuple[int, ...]]:
    """A net after two steps with CCLP: running statistics and weights are no longer the first."""
    make, shape = NETS[name]
    torch.manual_seed(0)
    net = make()
    optimizer = torch.optim.Adam(net.parameters(), 0.01)
    for _ in range(2):
        plain_step(
            net, optimizer, torch.randn(6, *shape), torch.arange(6) % 3, torch.randn(6, *shape)
        )
    return net.eval(), shape


@torch_own
@pytest.mark.parametrize("name", NETS)
def test_exported_programs_give_the_same_logits(name: str, tmp_path: Path) -> None:
    """By torch.export and by ONNX, for batches of any size; "small" is in test_export.py."""
    net, shape = classifier(name)
    any_size = {"x": {0: torch.export.Dim("batch")}}
    program = torch.export.export(net, (torch.randn(2, *shape),), dynamic_shapes=any_size)
    path = tmp_path / "net.onnx"
    torch.onnx.export(program, f=path, input_names=["x"], output_names=["logits"], verbose=False)
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    for size in (1, 2, 7):
        x = torch.randn(size, *shape)
        logits = net(x).detach()
        torch.testing.assert_close(program.module()(x), logits)
        (found,) = session.run(["logits"], {"x": x.numpy()})
        np.testing.assert_allclose(found, logits.numpy(), rtol=1e-3, atol=1e-5)
