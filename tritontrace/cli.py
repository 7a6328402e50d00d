"""The console command ``tritontrace``.

``tritontrace run script.py args...`` runs a program in this process, under a session for every thread. The program sees what it
would see without us: its argv, its ``__main__``, its exit code, its traceback.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import importlib.metadata
import json
import os
import runpy
import sys
import threading
import traceback
import types
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

__all__ = ["main"]

_FINDINGS_EXIT_CODE = 1
_USAGE = """tritontrace run [options] script.py [args...]
       tritontrace run [options] -m module [args...]
       tritontrace run [options] -- command [args...]"""


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the command line `argv` (without the program's name) and returns the exit code."""
    parser = _parser()
    options = parser.parse_args(sys.argv[1:] if argv is None else list(argv))
    if options.action == "doctor":
        return _doctor()
    if options.action == "run":
        return _run(options, options.parser)
    parser.print_help()
    return 2


@contextlib.contextmanager
def _until_nobody_reads() -> Iterator[None]:
    """Writing ends quietly where the reader of a pipe (``| head``) has gone."""
    try:
        yield
        sys.stdout.flush()
    except BrokenPipeError:
        # else the interpreter would try again at exit, and complain
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="tritontrace", description="Shows what Triton kernels do, launch by launch.")
    parser.add_argument("--version", action="version", version=_version())
    actions = parser.add_subparsers(dest="action", metavar="{run,doctor}")
    run = actions.add_parser(
        "run",
        usage=_USAGE,
        help="run a Python program with its kernel launches traced",
        description="Runs a Python program with every Triton kernel launch traced, and reports what the clients found. "
        "The exit code is the program's own, or 1 if it succeeded and there are findings.",
    )
    run.add_argument(
        "--client",
        "-c",
        action="append",
        dest="clients",
        metavar="NAME",
        help="a client to open (several: repeat, or separate by commas); default: sanitizer",
    )
    run.add_argument("--report", choices=("text", "json"), default="text", help="form of the report (default: text)")
    run.add_argument("--output", "-o", metavar="FILE", type=Path, help="write the report to FILE instead of standard output")
    run.add_argument("--engine", default="ir", metavar="NAME", help="the engine that runs the kernels (default: ir)")
    run.add_argument("--target", metavar="TARGET", help='the GPU to stand in for, as in "cuda:90" (default: the current one)')
    run.add_argument("--kernel", action="append", dest="kernels", metavar="NAME", help="trace only this kernel (may be repeated)")
    run.add_argument(
        "--program",
        action="append",
        dest="programs",
        metavar="X[,Y[,Z]]",
        type=_program_id,
        help="run only this program of each grid (may be repeated), to step through it with --engine python, say",
    )
    run.add_argument("--strict", action="store_true", help="fail where a launch cannot be traced, instead of warning")
    run.add_argument("-m", dest="module", nargs=argparse.REMAINDER, metavar="MODULE", help="run a module as python -m does")
    run.add_argument("words", nargs=argparse.REMAINDER, metavar="program", help="the script and its arguments")
    run.set_defaults(parser=run)
    actions.add_parser("doctor", help="show the versions and settings that matter", description="Shows versions and settings.")
    return parser


def _program_id(text: str) -> tuple[int, ...]:
    try:
        return tuple(int(part) for part in text.split(","))
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is no program id such as 3 or 0,1,0") from None


def _run(options: argparse.Namespace, parser: argparse.ArgumentParser) -> int:
    program = _program(options, parser)
    if options.output is not None:
        # now, and not when the program has run for an hour
        folder = options.output.absolute().parent
        if options.output.is_dir() or not os.access(options.output if options.output.exists() else folder, os.W_OK):
            parser.error(f"--output cannot be written: {options.output}")
    import tritontrace  # not before: `--help` need not wait for torch

    names = [name for text in options.clients or ["sanitizer"] for name in text.split(",") if name]
    if not names:
        parser.error("--client names no client")
    settings: dict[str, Any] = {"scope": "process", "engine": options.engine, "target": options.target}
    if options.kernels:
        settings["kernels"] = options.kernels
    if options.programs:
        settings["programs"] = options.programs
    if options.strict:
        settings["strict"] = True
    try:
        session = tritontrace.session(names, **settings)
    except (ValueError, TypeError) as error:  # an unknown client, engine or target, a negative program id
        parser.error(str(error))
    with session as opened:
        code = _call(program)
        # As the interpreter does at exit: what still runs belongs to the program.
        for thread in threading.enumerate():
            if thread is not threading.current_thread() and not thread.daemon:
                thread.join()
    _report(opened, options)
    if code == 0 and any(not finding.benign for finding in opened.findings):
        return _FINDINGS_EXIT_CODE
    return code


def _program(options: argparse.Namespace, parser: argparse.ArgumentParser) -> Callable[[], object]:
    """What to run, with ``sys.argv`` and ``sys.path`` set as Python sets them."""
    if options.module is not None:
        if not options.module:
            parser.error("-m needs the name of a module")
        return _module(options.module)
    words = list(options.words)
    if words[:1] == ["--"]:
        if len(words) < 2:
            parser.error("-- needs a command")
        return _command(words[1:], parser)
    if not words:
        parser.error("name a script, -m MODULE, or -- and a command")
    if words[0] == "-m":  # argparse hands it over like this after another positional-looking option
        return _module(words[1:]) if len(words) > 1 else parser.error("-m needs the name of a module")
    if not Path(words[0]).exists():
        parser.error(f"no such file: {words[0]}")
    return _script(words)


def _script(words: list[str]) -> Callable[[], object]:
    path = words[0]

    def call() -> None:
        sys.argv[:] = words
        if os.path.isdir(path) or not path.endswith(".py"):
            # A folder or archive with a __main__, compiled code: runpy knows how.
            if os.path.isfile(path) and not _is_archive(path):
                sys.path.insert(0, os.path.dirname(os.path.realpath(path)))
            runpy.run_path(path, run_name="__main__")
            return
        sys.path.insert(0, os.path.dirname(os.path.realpath(path)))
        code = compile(Path(path).read_bytes(), path, "exec", dont_inherit=True)
        main_module = types.ModuleType("__main__")
        main_module.__file__ = path
        main_module.__dict__["__builtins__"] = sys.modules["builtins"]
        # It stays in place: pickling, and child processes, look it up until the very end.
        sys.modules["__main__"] = main_module
        exec(code, main_module.__dict__)

    return call


def _is_archive(path: str) -> bool:
    with open(path, "rb") as file:
        return file.read(2) == b"PK"


def _module(words: list[str]) -> Callable[[], object]:
    def call() -> None:
        sys.argv[:] = words
        sys.path.insert(0, os.getcwd())
        runpy.run_module(words[0], run_name="__main__", alter_sys=True)

    return call


def _command(words: list[str], parser: argparse.ArgumentParser) -> Callable[[], object]:
    """An installed Python command (``pytest``, ``torchrun``), or ``python`` itself, inside this process."""
    name = words[0]
    stem = os.path.basename(name)
    if stem.startswith("python") or os.path.realpath(name) == os.path.realpath(sys.executable):
        rest = words[1:]
        if rest[:1] == ["-m"] and len(rest) > 1:
            return _module(rest[1:])
        if rest and not rest[0].startswith("-") and Path(rest[0]).exists():
            return _script(rest)
        parser.error("after python, name a script or -m MODULE")
    entries = list(importlib.metadata.entry_points(group="console_scripts", name=stem))
    if entries:

        def call() -> None:
            sys.argv[:] = words
            sys.exit(entries[0].load()())

        return call
    if Path(name).is_file():
        return _script(words)
    parser.error(f"{name!r} is not a Python command of this environment")


def _call(program: Callable[[], object]) -> int:
    """Runs the program and returns its exit code; an exception is shown as Python shows it, without our frames."""
    try:
        program()
    except SystemExit as stop:
        if stop.code is None:
            return 0
        if isinstance(stop.code, int):
            return stop.code & 0xFF
        print(stop.code, file=sys.stderr)
        return 1
    except BaseException as error:
        shown = _users_part(error.__traceback__)
        error.__traceback__ = shown
        if isinstance(error, SyntaxError) and shown is None:
            traceback.print_exception(type(error), error, None)
        else:
            sys.excepthook(type(error), error, shown)
        return 130 if isinstance(error, KeyboardInterrupt) else 1
    finally:
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(OSError, ValueError, AttributeError):
                stream.flush()
    return 0


def _users_part(trace: types.TracebackType | None) -> types.TracebackType | None:
    """The traceback from the program's own first frame on."""
    ours = {__file__, runpy.__file__}
    while trace is not None:
        file = trace.tb_frame.f_code.co_filename
        if file not in ours and not file.startswith("<frozen"):
            return trace
        trace = trace.tb_next
    return None


def _report(session: Any, options: argparse.Namespace) -> None:
    if options.report == "json":
        from tritontrace.reports.data import as_dict

        text = json.dumps(as_dict(session), indent=2) + "\n"
    else:
        text = session.report()
    if options.output is not None:
        options.output.write_text(text, encoding="utf-8")
    else:
        with _until_nobody_reads():
            sys.stdout.write(text if text.endswith("\n") else text + "\n")


def _version() -> str:
    try:
        return importlib.metadata.version("tritontrace")
    except importlib.metadata.PackageNotFoundError:
        return "unknown (not installed)"


_REQUIRED = ("triton", "torch", "numpy", "wrapt", "ml_dtypes", "rich", "typing_extensions")


def _doctor() -> int:
    """Prints what a report of a fault should contain; 1 if something that is needed is missing."""
    healthy = True
    lines = [("tritontrace", _version()), ("python", f"{sys.version.split()[0]} ({sys.executable})")]
    for package in _REQUIRED:
        try:
            lines.append((package, importlib.metadata.version(package)))
        except importlib.metadata.PackageNotFoundError:
            lines.append((package, "MISSING"))
            healthy = False
    if healthy:
        import torch

        from tritontrace.clients.registry import known_names
        from tritontrace.kernels import capabilities

        healthy = capabilities.problem() is None
        found = torch.cuda.get_device_name() if torch.cuda.is_available() else "none (kernels run all the same)"
        lines += [("gpu", found), ("clients", ", ".join(known_names())), ("this triton", capabilities.verdict())]
        if healthy:
            for name, given, meaning in capabilities.answers():
                lines.append((f"  {'has' if given else 'lacks'}", f"{name}: {meaning}"))
            from tritontrace.engines.ir import unsupported

            lines.append(("not executed", "public names of triton.language, each with the reason"))
            lines += [(f"  {name}", why) for name, why in unsupported.reasons().items()]
    for variable in ("TRITON_INTERPRET", "TRITON_CACHE_DIR"):
        lines.append((variable, os.environ.get(variable, "not set")))
    with _until_nobody_reads():
        for name, value in lines:
            print(f"{name:<18} {value}")
    return 0 if healthy else 1


if __name__ == "__main__":
    sys.exit(main())
