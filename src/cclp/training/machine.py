"""What this machine is, and the precision that is fastest on it."""

import logging
import os
import platform
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import torch

import cclp
from cclp.training.amx import avoid_broken_amx
from cclp.training.processes import RENDEZVOUS, launched_here

if TYPE_CHECKING:
    from lightning_fabric import Fabric

FabricPrecision = Literal["bf16-mixed", "32-true"]


def has_bfloat16(device: torch.device) -> bool:
    """Whether convolutions in bfloat16 run on the device's own instructions.

    A processor without them computes bfloat16 all the same, several times slower than float32.
    """
    if device.type == "cuda":
        return bool(torch.cuda.is_bf16_supported(including_emulation=False))
    if device.type != "cpu":
        return False
    if platform.machine().lower() in ("x86_64", "amd64"):  # oneDNN is content with any AVX-512
        return torch.cpu._is_avx512_bf16_supported() or torch.cpu._is_amx_tile_supported()
    available = torch.backends.mkldnn.is_available()  # type: ignore[no-untyped-call]
    return available and bool(torch.ops.mkldnn._is_mkldnn_bf16_supported())


def find_device(accelerator: str) -> torch.device:
    """The device that "auto", "cpu", "cuda" or "mps" stands for here.

    Raises:
        ValueError: if this machine has none of that kind.
    """
    there = {
        "cuda": torch.cuda.is_available(),
        "mps": torch.backends.mps.is_available(),
        "cpu": True,
    }
    if accelerator == "auto":
        accelerator = next(kind for kind, found in there.items() if found)
    if not there[accelerator]:
        raise ValueError(f"accelerator {accelerator!r} is not on this machine: use 'cpu'")
    return torch.device(accelerator)


def fabric_precision(precision: str, device: torch.device) -> FabricPrecision:
    """Fabric's name for "bf16", "32" or "auto"."""
    wanted = has_bfloat16(device) if precision == "auto" else precision == "bf16"
    return "bf16-mixed" if wanted else "32-true"


def make_fabric(
    accelerator: str,
    precision: str,
    devices: int = 1,
    unused: bool = False,
) -> "Fabric":
    """Fabric on devices of that kind, with a process for each.

    Args:
        accelerator, precision, devices: as in the configuration.
        unused: whether some parameters may not be used in a step.

    Raises:
        ValueError: if this machine has not got so many.
    """
    from lightning_fabric import Fabric  # with torch._dynamo, more than a second
    from lightning_fabric.strategies.ddp import DDPStrategy

    device = find_device(accelerator)
    if device.type == "cpu":
        avoid_broken_amx()
    here = devices if devices == 1 else launched_here() or devices
    # It announces the precision and the processes on standard error, even if we are to be quiet.
    logging.getLogger("lightning_fabric.utilities.rank_zero").setLevel(logging.WARNING)
    there = {"cuda": torch.cuda.device_count(), "mps": 1}.get(device.type, here)
    if here > there:
        raise ValueError(f"devices must be at most {there} ({device.type}) here, got {here}")
    return Fabric(
        accelerator=device.type,
        devices=here,
        num_nodes=devices // here,
        strategy="auto"
        if devices == 1
        else DDPStrategy(timeout=RENDEZVOUS, find_unused_parameters=unused),
        precision=fabric_precision(precision, device),
    )


def environment(device: torch.device) -> dict[str, Any]:
    """What a result depends on besides its configuration: versions, processor, threads."""
    packages = ("numpy", "scikit-learn", "lightning-fabric", "safetensors")
    return {
        "versions": {
            "cclp": cclp.__version__,
            "python": platform.python_version(),
            "torch": torch.__version__,
            **{name: version(name) for name in packages},
        },
        "machine": {
            "system": platform.system(),
            "processor": processor(),
            "capability": torch.backends.cpu.get_cpu_capability(),
            "cores": os.cpu_count(),
            "threads": torch.get_num_threads(),
            "device": torch.cuda.get_device_name(device) if device.type == "cuda" else device.type,
        },
    }


def differences(before: dict[str, Any], now: dict[str, Any]) -> list[str]:
    """What changed between two environments, in words."""
    return [
        f"{name} {before.get(part, {}).get(name)} → {now[part][name]}"
        for part in now
        for name in now[part]
        if before.get(part, {}).get(name) != now[part][name]
    ]


def processor() -> str:
    """Its name."""
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists():
        for line in cpuinfo.read_text().splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    return platform.processor() or platform.machine()
