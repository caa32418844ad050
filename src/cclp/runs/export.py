"""A trained network as files that other programs load, with a card that says what it is.

=================================== ==========================================================
``model.onnx``                      for ONNX Runtime and others; or
``model.safetensors``               weights, for :func:`load_exported`
``card.json``, ``card.md``          data, labels, accuracy, configuration, versions
=================================== ==========================================================

The network takes raw samples, as they are in the files, and gives logits and embeddings: what
normalises its inputs is part of it.
"""

import hashlib
import os
import shutil
import tempfile
import warnings
from pathlib import Path
from typing import Any, Literal, get_args

import torch
from safetensors import SafetensorError
from safetensors.torch import load, save
from torch import Tensor, nn

from cclp.checks import check_choice
from cclp.data.dataset import InputSpec
from cclp.data.normalize import ZScore
from cclp.data.splits import SOURCES
from cclp.files import write_bytes, write_json
from cclp.nets.registry import make_net
from cclp.progress import Reporter
from cclp.runs.inference import Trained, open_run
from cclp.runs.record import read_config, read_json, read_result
from cclp.training.machine import environment
from cclp.user_code import confirm_named

Format = Literal["onnx", "safetensors"]
FORMATS = get_args(Format)
CARD = "card.json"


class Classifier(nn.Module):
    """From raw samples to logits and embeddings.

    Args:
        normalizer: of inputs.
        net: the trained network.
    """

    def __init__(self, normalizer: nn.Module, net: nn.Module) -> None:
        super().__init__()
        self.normalizer = normalizer
        self.net = net

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Logits, (N, C), and z, (N, F), of samples (N, channels, height, width) or (N, D)."""
        z = self.net.features(self.normalizer(x))  # type: ignore[operator]
        return self.net.classifier(z), z  # type: ignore[operator]


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
        The content of ``card.json``.

    Raises:
        ValueError: if the run cannot be used, if there is something at ``out``, or if the network
            cannot be brought into the format.
    """
    check_choice("format", format, FORMATS)
    if out.exists():
        raise ValueError(f"{out} exists and is never overwritten: choose another --out")
    trained = open_run(run, net, report)
    classifier = Classifier(trained.objective.normalizer, trained.objective.network).cpu().eval()
    name = f"model.{format}"
    if format == "onnx":
        content = _to_onnx(classifier, trained.spec)
    else:
        state = classifier.state_dict()
        content = save({key: tensor.contiguous() for key, tensor in state.items()})
    card = _card(run, trained, name, content)
    out.parent.mkdir(parents=True, exist_ok=True)
    folder = Path(tempfile.mkdtemp(dir=out.parent, prefix=".export-"))
    try:
        write_bytes(folder / name, content)
        write_json(folder / CARD, card)
        write_bytes(folder / "card.md", markdown(card).encode())
        folder.chmod(0o755)
        os.rename(folder, out)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return card


def load_exported(folder: Path, net: str | None = None) -> Classifier:
    """The network of an exported ``model.safetensors``, in evaluation mode.

    Args:
        folder: that :func:`export` has made.
        net: the user's own network named again, if it is one.

    Raises:
        ValueError: if the files are not what they should be.
    """
    card = read_json(folder, CARD)
    try:
        content = (folder / "model.safetensors").read_bytes()
        if hashlib.sha256(content).hexdigest() != card["sha256"]:
            raise ValueError("model.safetensors is not the file that card.json was made for")
        tensors = load(content)
        normalizer = ZScore(tensors["normalizer.mean"], tensors["normalizer.scale"])
        name = confirm_named("net", str(card["configuration"]["recipe"]["net"]), net)
        spec = InputSpec.from_json(card["input"])
        classifier = Classifier(normalizer, make_net(name, spec.shape, spec.num_classes))
        classifier.load_state_dict(tensors)
    except (OSError, KeyError, TypeError, ValueError, RuntimeError, SafetensorError) as error:
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


def _card(run: Path, trained: Trained, name: str, content: bytes) -> dict[str, Any]:
    about, config = read_config(run)
    result = read_result(run)
    return {
        "file": name,
        "sha256": hashlib.sha256(content).hexdigest(),
        "data": about["data"]["name"],
        "data_verified": about["data"]["verified"],
        "num_labels": "all" if about["labeled"] == "all" else len(about["labeled"]),
        "input": trained.spec.to_json(),
        "parameters": sum(p.numel() for p in trained.objective.network.parameters()),
        "finished": result is not None,
        "error": None if result is None else result.error,
        "evaluated_on": None if result is None else result.evaluated_on,
        "num_samples": None if result is None else result.num_samples,
        "configuration": config.to_json(),
        "trained_with": about["environment"],
        "exported_with": environment(torch.device("cpu")),
    }


def markdown(card: dict[str, Any]) -> str:
    """The card for people."""
    spec, config = card["input"], card["configuration"]
    unlike = ", not the published files" if card["data_verified"] is False else ""
    classes = ", ".join(spec["classes"])
    shape = " x ".join(map(str, spec["shape"]))
    kind = "pixels" if len(spec["shape"]) == 3 else "features"
    scale = f", whole numbers from 0 to {spec['white']}" if spec["white"] is not None else ""
    if spec["pixel_range"] is not None:
        low, high = spec["pixel_range"]
        scale += f" (pixels of the files from {low:g} to {high:g})"
    if card["error"] is not None:
        measured = f"the {SOURCES[card['evaluated_on']]}, {card['num_samples']} samples"
        found = f"{card['error']:.2%} error on {measured}"
    else:
        found = "not measured" if card["finished"] else "the training was not finished"
    rows = {
        "Data": f"{card['data']}{unlike}",
        "Labels": card["num_labels"],
        "Classes": f"{len(spec['classes'])}: {classes}",
        "Input `x`": f"N x {shape} {kind}, float32{scale}; normalised inside",
        "Output": "`logits`, N x classes; `embedding`, N x features",
        "Accuracy": f"{found}; one run, its last iterate",
        "Method": f"{config['method']}, recipe {config['recipe']['name']}, "
        f"{config['recipe']['max_steps']:,} steps, seed {config['seed']}",
        "Network": f"{config['recipe']['net']}, {card['parameters']:,} parameters",
        "Versions": ", ".join(f"{k} {v}" for k, v in card["trained_with"]["versions"].items()),
        "SHA-256": card["sha256"],
    }
    lines = [f"# {card['file']}: a classifier of {card['data']}", "", "| | |", "|---|---|"]
    lines += [f"| {name} | {_cell(value)} |" for name, value in rows.items()]
    lines += ["", "Everything else about the training is in `card.json`. Made by `cclp export`."]
    return "\n".join(lines) + "\n"


def _cell(value: object) -> str:
    """Names come from data: they stay text in one cell."""
    text = " ".join(str(value).split())
    return text.replace("\\", "\\\\").replace("|", "\\|").replace("<", "&lt;")
