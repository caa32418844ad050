"""A trained network as files that other programs load, with a card that says what it is.

======================= ======================================================================
``model.onnx``          for ONNX Runtime and others; or
``model.safetensors``   weights, for :func:`load_exported`
``config.json``         data, labels, accuracy, configuration, versions, for programs
``README.md``           the same for people, and metadata: the card of a model on the Hugging
                        Face Hub
======================= ======================================================================

The network takes raw samples, as they are in the files, and gives logits and embeddings: what
normalises its inputs is part of it.
"""

import hashlib
import os
import re
import shutil
import tempfile
import warnings
from pathlib import Path
from typing import Any, Literal, get_args

import torch
from safetensors import SafetensorError
from safetensors.torch import load, save
from torch import Tensor, nn

from cclp.checks import check_choice, check_integer, check_number
from cclp.data.dataset import InputSpec
from cclp.data.normalize import ZScore
from cclp.files import DAMAGE, read_bytes, write_bytes, write_json
from cclp.nets.registry import make_net
from cclp.progress import Reporter
from cclp.runs.checkpoint import LARGEST
from cclp.runs.inference import Trained, check_sizes, open_run
from cclp.runs.model_card import model_card
from cclp.runs.record import damage_named, read_config, read_json, read_result
from cclp.training.config import Config
from cclp.training.machine import environment
from cclp.training.trainer import tensors_below
from cclp.user_code import confirm_named

Format = Literal["onnx", "safetensors"]
FORMATS = get_args(Format)
CONFIG, OLD_CONFIG = "config.json", "card.json"  # the latter in version 0.1


class Classifier(nn.Module):
    """From raw samples to logits and embeddings.

    Args:
        normalizer: of inputs.
        net: the trained network.
        temperature: by which its logits are divided, so that they give calibrated probabilities.
    """

    def __init__(self, normalizer: nn.Module, net: nn.Module, temperature: float = 1.0) -> None:
        super().__init__()
        self.normalizer = normalizer
        self.net = net
        self.temperature = temperature

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Logits, (N, C), and z, (N, F), of samples (N, channels, height, width) or (N, D)."""
        z = self.net.features(self.normalizer(x))  # type: ignore[operator]
        return self.net.classifier(z) / self.temperature, z  # type: ignore[operator]


def export(
    run: Path,
    out: Path,
    format: Format = "onnx",  # noqa: A002 - as the option is called
    net: str | None = None,
    report: Reporter | None = None,
) -> dict[str, Any]:
    """Write a run's network into a new folder.

    Args:
        run: the run directory.
        out: the folder; must not be there yet.
        format: "onnx" or "safetensors".
        net: the user's own network named again, if the run needs it.
        report: warns of damaged checkpoints.

    Returns:
        The content of ``config.json``.

    Raises:
        ValueError: if the run cannot be used, if there is something at ``out``, or if the network
            cannot be brought into the format.
    """
    check_choice("format", format, FORMATS)
    if out.exists():
        raise ValueError(f"{out} exists and is never overwritten: choose another --out")
    trained = open_run(run, net, report)
    objective = trained.objective
    classifier = Classifier(objective.normalizer, objective.network, trained.temperature)
    classifier.cpu().eval()
    name = f"model.{format}"
    if format == "onnx":
        content = _to_onnx(classifier, trained.spec)
    else:
        state = classifier.state_dict()
        content = save({key: tensor.contiguous() for key, tensor in state.items()})
    config = _config(run, trained, name, content)
    out.parent.mkdir(parents=True, exist_ok=True)
    folder = Path(tempfile.mkdtemp(dir=out.parent, prefix=".export-"))
    try:
        write_bytes(folder / name, content)
        write_json(folder / CONFIG, config)
        write_bytes(folder / "README.md", model_card(config).encode(errors="replace"))
        folder.chmod(0o755)
        os.rename(folder, out)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return config


def load_exported(folder: Path, net: str | None = None) -> Classifier:
    """The network of an exported ``model.safetensors``, in evaluation mode.

    Args:
        folder: that :func:`export` has made.
        net: the user's own network named again, if it is one.

    Raises:
        ValueError: if the files are not what they should be.
    """
    about = OLD_CONFIG if (folder / OLD_CONFIG).exists() else CONFIG
    config = read_json(folder, about)
    try:
        content = read_bytes(folder / "model.safetensors", LARGEST)
        if hashlib.sha256(content).hexdigest() != config["sha256"]:
            raise ValueError(f"model.safetensors is not the file that {about} was made for")
        tensors = load(content)
        normalizer = ZScore(tensors["normalizer.mean"], tensors["normalizer.scale"])
        name = confirm_named("net", str(config["configuration"]["recipe"]["net"]), net)
        spec = InputSpec.from_json(config["input"])
        check_sizes(name, spec, tensors_below(tensors, "net."))
        own = make_net(name, spec.shape, spec.num_classes)
        temperature = check_number("temperature", config.get("temperature", 1.0), above=0)
        classifier = Classifier(normalizer, own, temperature)
        classifier.load_state_dict(tensors)
    except (OSError, *DAMAGE, RuntimeError, SafetensorError) as error:
        raise ValueError(f"{folder} cannot be used: {' '.join(str(error).split())[:200]}") from None
    return classifier.eval()


def _to_onnx(classifier: Classifier, spec: InputSpec) -> bytes:
    """The bytes of an ONNX file that takes any number of samples, in float32."""
    try:
        import onnxscript  # noqa: F401 - torch.onnx says in a page that it is missing
    except ModuleNotFoundError:
        raise ValueError(
            "ONNX is not installed: pip install 'cclp[onnx]', or choose --format safetensors"
        ) from None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of torch to itself
        try:
            program = torch.onnx.export(
                classifier,
                (torch.zeros(2, *spec.shape),),
                input_names=["x"],
                output_names=["logits", "embedding"],
                dynamic_shapes=({0: torch.export.Dim("samples")},),
                dynamo=True,
                verbose=False,
            )
        except torch.onnx.errors.OnnxExporterError as error:
            reason = " ".join(str(error).split())[:200]
            raise ValueError(f"this network cannot be written as ONNX: {reason}") from None
    assert program is not None
    content: bytes = program.model_proto.SerializeToString()
    return content


def _config(run: Path, trained: Trained, name: str, content: bytes) -> dict[str, Any]:
    about, asked = read_config(run)
    result = read_result(run)
    with damage_named(run / "config.json"):
        labels = _labels_per_class(about, trained.spec.classes)
    return {
        "file": name,
        "sha256": hashlib.sha256(content).hexdigest(),
        "data": about["data"]["name"],
        "data_verified": about["data"]["verified"],
        "num_labels": "all" if about["labeled"] == "all" else len(about["labeled"]),
        "labels_per_class": labels,
        "input": trained.spec.to_json(),
        "parameters": sum(p.numel() for p in trained.objective.network.parameters()),
        "temperature": trained.temperature,
        "finished": result is not None,
        "error": None if result is None else result.error,
        "evaluated_on": None if result is None else result.evaluated_on,
        "num_samples": None if result is None else result.num_samples,
        "configuration": _without_places(asked),
        "trained_with": about["environment"],
        "exported_with": environment(torch.device("cpu")),
    }


def _labels_per_class(about: dict[str, Any], classes: tuple[str, ...]) -> dict[str, int] | None:
    """How many labels of each class the training had; None if an older version trained."""
    counts = about.get("labels_per_class")
    if counts is None:
        return None
    each = zip(classes, counts, strict=True)
    return {name: check_integer("labels_per_class", count, least=0) for name, count in each}


def _without_places(config: Config) -> dict[str, Any]:
    """A configuration as strangers may read it: of paths on this machine only the last part."""
    content = config.to_json()
    del content["data"], content["data_dir"]  # the card has the name of the data
    if config.pseudo_label_features is not None:
        content["pseudo_label_features"] = Path(config.pseudo_label_features).name
    content["method"] = _last_part(config.method)
    content["settings"] = {_last_part(name): values for name, values in config.settings.items()}
    for name in ("method", "net"):
        content["recipe"][name] = _last_part(content["recipe"][name])
    return content


def _last_part(name: str) -> str:
    """Code of a user without its folders: ``mine.py:Method+vat`` of ``/a/mine.py:Method+vat``."""
    return "+".join(re.split(r"[/\\]", part)[-1] for part in name.split("+"))
