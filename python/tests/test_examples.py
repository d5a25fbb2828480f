"""Every example runs on a CPU, and says that it has learned."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[1] / "examples"
NEEDS = {
    "hugging_face.py": ["transformers", "accelerate"],
    "accelerate_loop.py": ["accelerate"],
    "lightning_trainer.py": ["lightning"],
    "peft_lora.py": ["transformers", "peft"],
    "image_classifier.py": ["timm"],
    "diffusion.py": ["diffusers"],
}


@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*.py")), ids=lambda path: path.name)
def test_example(path):
    missing = [name for name in NEEDS.get(path.name, []) if importlib.util.find_spec(name) is None]
    if missing:
        pytest.skip(f"{', '.join(missing)} is not installed")
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1", "CUDA_VISIBLE_DEVICES": ""}
    done = subprocess.run(
        [sys.executable, "-W", "error::UserWarning:untuned", str(path)], capture_output=True, text=True, env=environment, timeout=300
    )
    assert done.returncode == 0, done.stderr[-3000:]
    assert "the loss fell from" in done.stdout
