"""The file of a saved estimator: safetensors, with JSON in its metadata. Nothing in it is run."""

import json
from math import prod
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.torch import load, save
from torch import Tensor

from cclp.checks import check_choice, check_integer, check_number
from cclp.data.normalize import ZScore
from cclp.files import DAMAGE, LARGEST, parse_json
from cclp.nets import Net
from cclp.nets.sizes import compare_sizes
from cclp.pseudo_labels.schedule import Decision
from cclp.selection.verdict import Verdict
from cclp.sklearn.parameters import build_net
from cclp.training.config import ACCELERATORS
from cclp.training.objective import Objective
from cclp.training.trainer import tensors_below
from cclp.user_code import is_user_code

if TYPE_CHECKING:
    from cclp.sklearn.classifier import CCLPClassifier

    _C = TypeVar("_C", bound=CCLPClassifier)

LARGEST_FILE = 2**34  # bytes
_KEY, _VERSION = "cclp_estimator", 1
_INTEGERS = [f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)]
_FLOATS = ["float16", "float32", "float64"]
_TYPES: dict[str, type] = {"str": str, "object": str, "bool": bool}  # of classes, by dtype
_TYPES |= dict.fromkeys(_INTEGERS, int) | dict.fromkeys(_FLOATS, float)


def own_code(parameters: dict[str, Any]) -> dict[str, Any]:
    """Parameters that are, or name, code of the user's own: a file has none."""
    net, method = parameters["net"], parameters["method"]
    found = {"net": (net, callable(net)), "method": (method, is_user_code(method))}
    return {name: value for name, (value, is_own) in found.items() if is_own}


def to_bytes(model: "CCLPClassifier") -> bytes:
    """All of a fitted estimator but code of the user's own.

    Raises:
        ValueError: if it has something that JSON cannot hold.
    """
    parameters = model.get_params(deep=False)
    own = own_code(parameters)
    names = getattr(model, "feature_names_in_", None)
    about = {
        "version": _VERSION,
        "parameters": {n: _plain(n, value) for n, value in parameters.items() if n not in own},
        "own_code": sorted(own),
        "net": None if callable(model._net) else model._net,
        "shape": model._shape,
        "classes": _plain_classes(model.classes_),
        "feature_names": None if names is None else names.tolist(),
        "temperature": model._temperature,
        "method": model.method_,
        "steps": model.n_iter_,
        "history": model.history_,
        "pseudo_labels": model.pseudo_label_decision_,
        "verdict": model.verdict_,
    }
    tensors = {"offset": torch.from_numpy(model._offset)}
    for part, module in (("normalizer", model._objective.normalizer), ("net", model.module_)):
        tensors |= {f"{part}.{n}": tensor for n, tensor in module.state_dict().items()}
    contiguous = {n: tensor.contiguous() for n, tensor in tensors.items()}
    return save(contiguous, {_KEY: json.dumps(about, allow_nan=False)})


def from_bytes(kind: type["_C"], content: bytes, own: dict[str, Any]) -> "_C":
    """The estimator that :func:`to_bytes` was given; ``own``: the code that the file has not.

    Raises:
        ValueError: for anything else.
    """
    try:
        return _from_bytes(kind, content, own)
    except (*DAMAGE, RuntimeError, SafetensorError) as error:
        raise ValueError(" ".join(str(error).split())[:200]) from None


def _from_bytes(kind: type["_C"], content: bytes, own: dict[str, Any]) -> "_C":
    tensors = load(content)
    header = parse_json(content[8 : 8 + int.from_bytes(content[:8], "little")])
    about = parse_json(header.get("__metadata__", {}).get(_KEY, "null").encode())
    if not isinstance(about, dict) or about["version"] != _VERSION:
        raise ValueError("it is no estimator that this version has saved")
    if about["own_code"] != sorted(own):
        needed, came = (", ".join(map(str, c)) or "nothing" for c in (about["own_code"], own))
        raise ValueError(f"it was saved with code of your own for {needed}, got it for {came}")
    model = kind(**{n: _restored(v) for n, v in about["parameters"].items()}, **own)
    if own_code(model.get_params(deep=False)) != own:
        raise ValueError("it names code to be run")
    check_choice("device", model.device, ACCELERATORS)
    model.classes_ = _restored_classes(**about["classes"])
    model._shape = tuple(check_integer("shape", size, least=1) for size in about["shape"])
    model._offset, model.n_features_in_ = tensors["offset"].numpy(), prod(model._shape)
    if model._offset.dtype != np.float64 or model._offset.shape != (model.n_features_in_,):
        raise ValueError(f"offset must be of {model.n_features_in_} numbers")
    if (names := about["feature_names"]) is not None:
        if len(names) != model.n_features_in_ or not all(isinstance(n, str) for n in names):
            raise ValueError(f"there must be {model.n_features_in_} names of features")
        model.feature_names_in_ = np.array(names, dtype=object)
    model._temperature = check_number("temperature", about["temperature"], above=0)
    model.method_ = str(about["method"])
    model.n_iter_ = check_integer("steps", about["steps"], least=0)
    model.history_ = {n: [check_number(n, v) for v in vs] for n, vs in about["history"].items()}
    decision, verdict = about["pseudo_labels"], about["verdict"]
    model.pseudo_label_decision_ = decision and Decision.from_json(decision).to_json()
    model.verdict_ = verdict and Verdict.from_json(verdict).to_json()
    model._net = own["net"] if about["net"] is None else about["net"]
    _set_network(model, tensors)
    return model


def _set_network(model: "CCLPClassifier", tensors: dict[str, Tensor]) -> None:
    hidden, weights = model.hidden_sizes, tensors_below(tensors, "net.")
    if len(hidden) > len(weights):
        raise ValueError(f"it has {len(weights)} weights for {len(hidden)} hidden layers")

    def make() -> Net:
        num_classes = len(model.classes_)
        return build_net(model._net, model._shape, num_classes, hidden, model.embedding_size)

    if not callable(model._net):
        compare_sizes(make, weights)
    normalizer = ZScore(**tensors_below(tensors, "normalizer."))
    expected = (1, model._shape[0], *[1] * (len(model._shape) - 1))
    if not normalizer.mean.shape == normalizer.scale.shape == expected:
        raise ValueError(f"what normalises samples must be of shape {expected}")
    objective = Objective(normalizer, make(), []).eval()
    objective.net.load_state_dict(weights)
    model._objective, model.module_ = objective, objective.net
    with torch.no_grad():
        z = objective.net.features(objective.inputs(torch.zeros(2, *model._shape)))
    model._n_features_out = z.shape[1]


def _plain(name: str, value: Any) -> Any:
    """A parameter as JSON can hold it."""
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, list | tuple):
        return [_plain(name, part) for part in value]
    if isinstance(value, dict):  # its keys are classes, of any type
        return {"pairs": [[_plain(name, part) for part in pair] for pair in value.items()]}
    if value is None or isinstance(value, bool | int | float | str):
        return value
    raise ValueError(
        f"{name} must be a plain value to be saved, got {type(value).__name__}: call "
        f"set_params({name}=…) before"
    )


def _restored(value: Any) -> Any:
    if isinstance(value, dict):
        return {_restored(key): _restored(part) for key, part in value["pairs"]}
    return tuple(map(_restored, value)) if isinstance(value, list) else value


def _plain_classes(classes: NDArray[Any]) -> dict[str, Any]:
    dtype = "str" if classes.dtype.kind == "U" else classes.dtype.name
    values = classes.tolist()
    if not all(isinstance(value, _TYPES.get(dtype, ())) for value in values):
        raise ValueError(
            "classes must be strings, integers, floats or booleans to be saved, got "
            f"{type(values[0]).__name__} of dtype {dtype}"
        )
    return {"dtype": dtype, "values": values}


def _restored_classes(dtype: str, values: list[Any]) -> NDArray[Any]:
    if not all(type(value) is _TYPES[dtype] for value in values):
        raise ValueError(f"classes must be of type {dtype}")
    if len(values) < 2 or len(set(values)) != len(values):
        raise ValueError("classes must be different, and at least 2")
    if dtype == "str" and 4 * len(values) * max(map(len, values)) > LARGEST:
        raise ValueError("names of classes are too long")
    return np.array(values, dtype=dtype)
