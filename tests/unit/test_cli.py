"""The console command, run as users run it: in processes of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
import torch

ROOT = Path(__file__).resolve().parents[2]

KERNEL = """
import sys
import torch
import triton
import triton.language as tl

@triton.jit
def copy_kernel(src, dst, count, TILE: tl.constexpr):
    at = tl.arange(0, TILE)
    tl.store(dst + at, tl.load(src + at, mask=at < count))  # line 10

def copy(room):
    src, dst = torch.arange(8.0), torch.zeros(room)
    copy_kernel[(1,)](src, dst, 8, TILE=8)
    return dst
"""


def command(*words: str, cwd: Path, env: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", **(env or {})}
    return subprocess.run(
        [sys.executable, "-m", "tritontrace.cli", *words], cwd=cwd, env=environment, capture_output=True, text=True, timeout=300
    )


def write(folder: Path, name: str, *texts: str) -> Path:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(textwrap.dedent(text) for text in texts))
    return path


def test_a_faulty_kernel_is_reported_and_the_exit_code_is_1(tmp_path: Path) -> None:
    script = write(tmp_path, "faulty.py", KERNEL, "print('copied', copy(6).tolist())\n")
    done = command("run", "--client", "sanitizer", str(script), cwd=tmp_path)
    assert done.returncode == 1, done.stderr
    assert "copied [0.0, 1.0, 2.0, 3.0, 4.0, 5.0]" in done.stdout
    assert "out-of-bounds store of dst" in done.stdout
    assert f"{script}:10" in done.stdout
    assert "2 elements: 6..7" in done.stdout
    assert "Traceback" not in done.stderr


def test_a_clean_kernel_exits_with_0(tmp_path: Path) -> None:
    script = write(tmp_path, "clean.py", KERNEL, "copy(8)\n")
    done = command("run", str(script), cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "no findings in 1 traced launch: copy_kernel" in done.stdout


def test_the_script_sees_its_own_world(tmp_path: Path) -> None:
    write(tmp_path, "scripts/beside.py", "WORD = 'beside'\n")
    write(
        tmp_path,
        "scripts/world.py",
        """
        import json, pickle, sys
        from beside import WORD
        class Thing:
            pass
        print(json.dumps({
            "argv": sys.argv, "name": __name__, "file": __file__, "path0": sys.path[0], "word": WORD,
            "main": sys.modules["__main__"].Thing is Thing, "pickled": type(pickle.loads(pickle.dumps(Thing()))) is Thing,
            "spec": __spec__ is None, "doc": __doc__, "annotations": "tritontrace" in globals(),
        }))
        """,
    )
    done = command("run", "-c", "sanitizer", "scripts/world.py", "--report", "a", "-m", "--", "b c", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    seen = json.loads(done.stdout.splitlines()[0])
    assert seen["argv"] == ["scripts/world.py", "--report", "a", "-m", "--", "b c"]
    assert seen["name"] == "__main__" and seen["file"] == "scripts/world.py" and seen["word"] == "beside"
    assert seen["path0"] == str(tmp_path / "scripts")
    assert seen["main"] and seen["pickled"] and seen["spec"] and seen["doc"] is None and not seen["annotations"]


@pytest.mark.parametrize(("ending", "code"), [("sys.exit(7)", 7), ("sys.exit()", 0), ("sys.exit('stop here')", 1), ("pass", 0)])
def test_the_exit_code_is_the_scripts(tmp_path: Path, ending: str, code: int) -> None:
    script = write(tmp_path, "ends.py", f"import sys\n{ending}\n")
    done = command("run", str(script), cwd=tmp_path)
    assert done.returncode == code
    assert ("stop here" in done.stderr) == ("stop" in ending)


def test_the_scripts_own_exit_code_wins_over_findings(tmp_path: Path) -> None:
    script = write(tmp_path, "both.py", KERNEL, "copy(6)\nsys.exit(5)\n")
    done = command("run", str(script), cwd=tmp_path)
    assert done.returncode == 5
    assert "out-of-bounds store" in done.stdout


def test_a_traceback_is_pythons_own(tmp_path: Path) -> None:
    script = write(tmp_path, "breaks.py", "def inner():\n    raise KeyError('gone')\n\ninner()\n")
    ours = command("run", str(script), cwd=tmp_path)
    plain = subprocess.run([sys.executable, str(script)], cwd=tmp_path, capture_output=True, text=True)
    assert ours.returncode == plain.returncode == 1
    assert ours.stderr == plain.stderr
    script.write_text("def broken(:\n")
    ours = command("run", str(script), cwd=tmp_path)
    plain = subprocess.run([sys.executable, str(script)], cwd=tmp_path, capture_output=True, text=True)
    assert ours.returncode == 1 and ours.stderr == plain.stderr


def test_an_excepthook_of_the_script_is_used(tmp_path: Path) -> None:
    script = write(
        tmp_path,
        "hooked.py",
        "import sys\n",
        "sys.excepthook = lambda kind, error, trace: print('hooked', error, trace.tb_lineno)\n",
        "raise ValueError('x')\n",
    )
    done = command("run", str(script), cwd=tmp_path)
    assert done.returncode == 1 and "hooked x 3" in done.stdout


def test_a_module(tmp_path: Path) -> None:
    write(tmp_path, "package/__init__.py", "")
    write(tmp_path, "package/__main__.py", KERNEL, "print(sys.argv[1:], __package__)\ncopy(6)\n")
    done = command("run", "--client=sanitizer", "-m", "package", "--flag", "x", cwd=tmp_path)
    assert done.returncode == 1, done.stderr
    assert "['--flag', 'x'] package" in done.stdout and "out-of-bounds store of dst" in done.stdout


def test_pytest_behind_two_dashes(tmp_path: Path) -> None:
    write(tmp_path, "test_it.py", KERNEL, "def test_good():\n    copy(8)\ndef test_bad():\n    copy(6)\n")
    done = command("run", "--client", "sanitizer", "--", "pytest", "-q", "-p", "no:cacheprovider", "test_it.py", cwd=tmp_path)
    assert done.returncode == 1, done.stderr
    assert "2 passed" in done.stdout and "1 finding in 2 traced launches" in done.stdout
    done = command("run", "--", "pytest", "-q", "-p", "no:cacheprovider", "test_it.py", "-k", "good", cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    done = command("run", "--", "python", "-m", "pytest", "-q", "-p", "no:cacheprovider", "nothing.py", cwd=tmp_path)
    assert done.returncode == 4


def test_launches_of_other_threads_count(tmp_path: Path) -> None:
    script = write(
        tmp_path,
        "threads.py",
        KERNEL,
        "import threading, time\n"
        "def later():\n    time.sleep(0.2)\n    copy(6)\n"
        "threading.Thread(target=later).start()\nprint('main is done')\n",
    )
    done = command("run", str(script), cwd=tmp_path)
    assert done.returncode == 1, done.stderr
    assert "main is done" in done.stdout and "1 finding in 1 traced launch" in done.stdout


def test_json_and_files(tmp_path: Path) -> None:
    script = write(tmp_path, "faulty.py", KERNEL, "copy(6)\nprint('its own output')\n")
    done = command("run", "-c", "sanitizer,tracer", "--report", "json", "--output", "report.json", str(script), cwd=tmp_path)
    assert done.returncode == 1, done.stderr
    assert done.stdout == "its own output\n"
    data = json.loads((tmp_path / "report.json").read_text())
    (finding,) = data["findings"]
    assert finding["tensor"] == "dst" and finding["elements"] == [6, 7] and finding["location"]["line"] == 10
    assert data["launches"][0]["kernel"] == "copy_kernel"


def test_only_the_named_kernels(tmp_path: Path) -> None:
    script = write(tmp_path, "faulty.py", KERNEL, "copy(8)\n")
    done = command("run", "--kernel", "copy_*", str(script), cwd=tmp_path)
    assert done.returncode == 0 and "1 traced launch" in done.stdout, done.stderr
    if sys.version_info >= (3, 11) and not torch.cuda.is_available():
        done = command("run", "--kernel", "other", str(script), cwd=tmp_path)
        assert done.returncode == 1 and "no launch was traced" in done.stdout
        assert "kernels= of the session leaves kernel 'copy_kernel' out" in done.stderr


def test_only_the_named_programs(tmp_path: Path) -> None:
    kernel = "@triton.jit\ndef mark(x):\n    tl.store(x + tl.program_id(0), 1.0)\n"
    script = write(tmp_path, "grid.py", KERNEL, kernel, "x = torch.zeros(4)\nmark[(4,)](x)\nprint(x.tolist())\n")
    done = command("run", "--program", "1", "--program", "3,0", str(script), cwd=tmp_path)
    assert "[0.0, 1.0, 0.0, 1.0]" in done.stdout, done.stderr
    assert "ran: programs (1, 0, 0), (3, 0, 0) of 4" in done.stdout


def test_a_reader_that_goes_away_ends_the_report_quietly(tmp_path: Path) -> None:
    script = write(tmp_path, "faulty.py", KERNEL, "copy(6)\n")
    for words, code in ((["doctor"], 0), (["run", str(script)], 1), (["run", "--report", "json", str(script)], 1)):
        environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
        started = subprocess.Popen(
            [sys.executable, "-m", "tritontrace.cli", *words],
            cwd=tmp_path, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
        assert started.stdout is not None and started.stderr is not None
        started.stdout.close()
        error = started.stderr.read()
        assert started.wait(300) == code and not error, (words, error)


def test_mistakes_on_the_command_line(tmp_path: Path) -> None:
    for words, text in (
        (("run", "--client", "sanitiser", "x.py"), "no such file: x.py"),
        (("run",), "name a script"),
        (("run", "--"), "needs a command"),
        (("run", "-m"), "name of a module"),
        (("run", "--", "no-such-command"), "not a Python command"),
    ):
        done = command(*words, cwd=tmp_path)
        assert done.returncode == 2, (words, done.stderr)
        assert text in done.stderr
    script = write(tmp_path, "x.py", "print('ran')\n")
    done = command("run", "--client", "sanitiser", str(script), cwd=tmp_path)
    assert done.returncode == 2 and "the nearest is 'sanitizer'" in done.stderr and "ran" not in done.stdout
    for words, text in (
        (("--output", "missing/report.txt"), "--output cannot be written"),
        (("--output", "."), "--output cannot be written"),
        (("--client", ""), "names no client"),
        (("--program", "x"), "is no program id"),
        (("--program", "1,2,3,4"), "takes program ids"),
    ):
        done = command("run", *words, str(script), cwd=tmp_path)
        assert done.returncode == 2 and text in done.stderr and "ran" not in done.stdout, (words, done.stderr)
        assert "tritontrace run [options] script.py" in done.stderr
    assert command(cwd=tmp_path).returncode == 2


def test_doctor_names_the_versions(tmp_path: Path) -> None:
    done = command("doctor", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    for word in ("tritontrace", "triton", "torch", "numpy", "sanitizer, tracer", "block_pointers", "TRITON_INTERPRET"):
        assert word in done.stdout
