"""CCLP in a module for Lightning's Trainer: digits with 50 labels.

Labeled and unlabeled images come from a loader each, combined by Lightning. The Trainer brings
devices, precision, logging and checkpoints.

    pip install 'cclp[examples]'
    python examples/lightning_module.py
"""

import argparse

import numpy as np
import pytorch_lightning as pl
import torch
import torch.nn.functional as F
from pytorch_lightning.utilities.combined_loader import CombinedLoader
from pytorch_lightning.utilities.types import OptimizerLRScheduler
from torch import Tensor
from torch.utils.data import DataLoader, TensorDataset

import cclp
from cclp.data.load import load
from cclp.data.splits import make_split
from cclp.nets import mlp

LABELS = 50


class Classifier(pl.LightningModule):
    """A perceptron that learns from batches ``{"labeled": (x, y), "unlabeled": (x,)}``.

    Args:
        learning_rate: largest one of a one-cycle schedule.
        weight: of CCLP; 0 leaves it out.
    """

    def __init__(self, learning_rate: float = 4e-3, weight: float = 1.0) -> None:
        super().__init__()
        self.save_hyperparameters()
        self.learning_rate = learning_rate
        self.net = mlp(64, 10)
        self.regulariser = cclp.CCLPLoss(10, weight=weight, similarity="euclidean", bandwidth=2.0)

    def training_step(self, batch: dict[str, list[Tensor]]) -> Tensor:
        """Cross entropy and CCLP of one batch of each kind."""
        (x_labeled, y), (x_unlabeled,) = batch["labeled"], batch["unlabeled"]
        z_labeled = self.net.features(x_labeled)
        loss = F.cross_entropy(self.net.classifier(z_labeled), y)
        if self.regulariser.weight:
            loss = loss + self.regulariser(z_labeled, y, self.net.features(x_unlabeled))
        self.log("loss", loss, prog_bar=True)
        return loss

    def test_step(self, batch: list[Tensor]) -> None:
        """The error, averaged over all batches by Lightning."""
        x, y = batch
        self.log("error", (self.net(x).argmax(1) != y).float().mean())

    def configure_optimizers(self) -> OptimizerLRScheduler:
        """Adam, its learning rate set at every step."""
        optimizer = torch.optim.Adam(self.parameters(), self.learning_rate)
        steps = int(self.trainer.estimated_stepping_batches)
        schedule = torch.optim.lr_scheduler.OneCycleLR(
            optimizer, self.learning_rate, total_steps=steps
        )
        return {
            "optimizer": optimizer,
            "lr_scheduler": {"scheduler": schedule, "interval": "step"},
        }


def make_loaders(seed: int) -> tuple[CombinedLoader, DataLoader[tuple[Tensor, ...]]]:
    """Training batches of both kinds, and test batches."""
    data = load("digits")
    split = make_split(data.train_y, LABELS, 0, seed)
    x, x_test = (torch.tensor(x / 16, dtype=torch.float32) for x in (data.train_x, data.test_x))
    y, y_test = torch.tensor(data.train_y), torch.tensor(data.test_y)
    labeled = TensorDataset(x[split.labeled], y[split.labeled])
    unlabeled = TensorDataset(x[split.unlabeled])
    loaders = {
        "labeled": DataLoader(labeled, batch_size=LABELS, shuffle=True),
        "unlabeled": DataLoader(unlabeled, batch_size=200, shuffle=True, drop_last=True),
    }
    # The labeled images begin again until the unlabeled ones are through.
    train = CombinedLoader(loaders, "max_size_cycle")
    return train, DataLoader(TensorDataset(x_test, y_test), batch_size=450)


def fit(weight: float, seed: int, steps: int) -> float:
    """Train with Lightning; the test error."""
    pl.seed_everything(seed, verbose=False)
    module, (train, test) = Classifier(weight=weight), make_loaders(seed)
    trainer = pl.Trainer(
        max_steps=steps,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    trainer.fit(module, train)
    (result,) = trainer.test(module, test, verbose=False)
    return result["error"]


def main() -> None:
    """Train without CCLP and with it, and print test errors."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=3, help="labeled sets")
    parser.add_argument("--max-steps", type=int, default=300, help="of each training")
    options = parser.parse_args()
    for name, weight in (("labels only", 0.0), ("with CCLP", 1.0)):
        errors = [fit(weight, seed, options.max_steps) for seed in range(options.seeds)]
        each = ", ".join(f"{error:.1%}" for error in errors)
        print(f"{name}: {np.mean(errors):.1%} of test images wrong ({each})")


if __name__ == "__main__":
    main()
