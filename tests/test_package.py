"""What a newcomer meets first: a cheap import, names that exist, on every system."""

import sys

import pytest

import cclp
from tests import children
from tests.children import modules_after

LATE = {"lightning_fabric", "torch._dynamo", "torchmetrics"}  # more than a second, with a Fabric
ESTIMATORS = (
    "decomposition", "discriminant_analysis", "ensemble", "linear_model", "model_selection",
    "neighbors", "svm",
)  # fmt: skip
OF_COMMANDS = {"PIL", "cclp.commands", "cclp.runs", "click", "filelock", "jinja2", "safetensors"}
ON_SOME_SYSTEMS_ONLY = """
import sys
for name in ("fcntl", "grp", "pwd", "resource", "termios"):
    sys.modules[name] = None
import pkgutil
import cclp
for module in pkgutil.walk_packages(cclp.__path__, "cclp."):
    if not module.name.endswith("__main__"):
        __import__(module.name)
print("cclp.runs.directory" in sys.modules)
"""


def test_import_is_lazy() -> None:
    assert "torch" not in modules_after("import cclp")
    loaded = modules_after("import cclp; cclp.CCLPLoss; cclp.graph_health")
    assert "torch" in loaded
    assert loaded.isdisjoint({"scipy", "sklearn", "matplotlib", *LATE})


def test_a_page_loads_neither_torch_nor_fabric() -> None:
    loaded = modules_after("import cclp.cli, cclp.report.page, cclp.experiments.folder")
    assert loaded.isdisjoint({"torch", "lightning_fabric"})


@pytest.mark.parametrize("module", ["cclp.runs.start", "cclp.runs.inference", "cclp.runs.export"])
def test_what_a_run_needs_is_loaded_when_it_trains(module: str) -> None:
    loaded = modules_after(f"import {module}")
    assert "torch" in loaded
    assert loaded.isdisjoint({"scipy", "sklearn", "matplotlib", *LATE})


def test_the_estimator_loads_other_estimators_when_it_needs_them() -> None:
    loaded = modules_after("import cclp.sklearn")
    assert {"torch", "sklearn.base"} <= loaded
    assert loaded.isdisjoint({"matplotlib", "cclp.selection.select", *LATE, *OF_COMMANDS})
    assert loaded.isdisjoint(f"sklearn.{name}" for name in ESTIMATORS)


def test_every_module_can_be_imported_without_what_windows_lacks() -> None:
    done = children.run([sys.executable, "-c", ON_SOME_SYSTEMS_ONLY], check=True)
    assert done.stdout == "True\n"


def test_public_names() -> None:
    for name in cclp.__all__:
        assert getattr(cclp, name).__doc__
        assert name in dir(cclp)
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        _ = cclp.nonsense
