"""A client of another package: installed from a wheel, found by its entry point's name."""

from __future__ import annotations

import base64
import hashlib
import os
import subprocess
import sys
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]

CLIENT = '''
from tritontrace import Client, OpCallbacks, events


class Stores(Client):
    name = "stores"

    def for_launch(self, launch):
        fresh = Stores()
        fresh.seen = 0
        return fresh

    def register_op_callback(self, op):
        return OpCallbacks(after=self.note) if op is events.Store else None

    def note(self, event):
        self.seen += event.count()

    def finalize(self):
        return [self.seen]
'''

PROGRAM = '''
import torch
import triton
import triton.language as tl
import tritontrace


@triton.jit
def fill(x, n, TILE: tl.constexpr):
    at = tl.program_id(0) * TILE + tl.arange(0, TILE)
    tl.store(x + at, 1.0, mask=at < n)


with tritontrace.session(clients=["stores", "sanitizer"]) as session:
    fill[(4,)](torch.zeros(50), 50, TILE=16)
print(session.launches[0].records["stores"], len(session.findings))
try:
    tritontrace.session(clients=["storse"])
except ValueError as error:
    print(error)
'''


def wheel(folder: Path) -> Path:
    """A wheel is a zip file with a list of its files: no build tool is needed to make one."""
    info = "their_clients-1.0.dist-info"
    files = {
        "their_clients.py": CLIENT,
        f"{info}/METADATA": "Metadata-Version: 2.1\nName: their-clients\nVersion: 1.0\n",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: hand\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        f"{info}/entry_points.txt": "[tritontrace.clients]\nstores = their_clients:Stores\n",
    }
    record = ""
    for name, text in files.items():
        digest = base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest()).rstrip(b"=").decode()
        record += f"{name},sha256={digest},{len(text.encode())}\n"
    path = folder / "their_clients-1.0-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as archive:
        for name, text in {**files, f"{info}/RECORD": record + f"{info}/RECORD,,\n"}.items():
            archive.writestr(name, text)
    return path


def test_a_client_from_an_installed_package(tmp_path: Path) -> None:
    site = tmp_path / "site"
    subprocess.run(
        [sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--no-index", "--target", str(site), str(wheel(tmp_path))],
        check=True,
        capture_output=True,
        timeout=300,
    )
    (tmp_path / "program.py").write_text(PROGRAM)
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), str(site)]), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, "program.py"], cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr
    first, error = done.stdout.strip().splitlines()
    assert first == "[50] 0"
    assert "storse" in error and "stores" in error
