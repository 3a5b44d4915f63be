"""The command line of experiments: its flags, its modes, and how it ends."""

from __future__ import annotations

import difflib
import importlib
import pathlib
import shlex
import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from mimetic_jax.base.extras import need

need("training", "train")  # and all else that a configuration describes

from absl import app, flags, logging
from ml_collections import ConfigDict

from mimetic_jax.base.errors import InputError, check_given, innermost, unknown
from mimetic_jax.base.exits import reported
from mimetic_jax.command import shipped
from mimetic_jax.command import usage as usage_of

if TYPE_CHECKING:
    from mimetic_jax.train.comparison import Comparison
    from mimetic_jax.train.report import Results
    from mimetic_jax.train.store.files import AnyPath
    from mimetic_jax.train.store.runs import Run

MODES = ("train", "eval", "compare", "plan", "fields", "compile", "analyze")
ANALYSES = ("products", "attention", "curves")
"""Values of --what, each a module of `mimetic_jax.analysis` with `analyze(comparison, workdir)`,
which draws WORKDIR/NAME.png and returns a line that names it."""

# What each flag means stands in `usage`, whose help takes the place of absl's.
_CONFIG = flags.DEFINE_string("config", None, "")
_WORKDIR = flags.DEFINE_string("workdir", None, "")
_MODE = flags.DEFINE_enum("mode", "train", MODES, "")
_TARGET = flags.DEFINE_string("target", "", "")
_DISTRIBUTED = flags.DEFINE_boolean("distributed", False, "")
_COORDINATOR = flags.DEFINE_string("coordinator", None, "")
_NUM_PROCESSES = flags.DEFINE_integer("num_processes", None, "")
_PROCESS_ID = flags.DEFINE_integer("process_id", None, "")
_TENSORBOARD = flags.DEFINE_string("tensorboard", None, "")
_WHAT = flags.DEFINE_string("what", "products", "")
_ONLY_FOR = {
    name: sorted(usage_of.flag(name).commands) for name in ("tensorboard", "what", "target")
}
"""The modes that a flag is for."""


def main(argv: Sequence[str]) -> None:
    """Run the mode; `argv` is what remains after the flags."""
    others, set_fields = shipped.separated(argv[1:])
    if others and _MODE.value != "fields":
        raise InputError(f"unexpected argument {others[0]!r}: flags start with --")
    if _CONFIG.value is None:
        raise InputError("pass a configuration: --config=configs/digits_vit.py")
    check_given("--config", _CONFIG.value)
    check_given("--workdir", _WORKDIR.value)
    check_given("--tensorboard", _TENSORBOARD.value)
    for name, modes in _ONLY_FOR.items():
        if flags.FLAGS[name].present and _MODE.value not in modes:
            raise InputError(f"--{name} is for {' and '.join(modes)}, not for {_MODE.value}")
    if _WHAT.value not in ANALYSES:
        raise unknown("analysis", _WHAT.value, ANALYSES)
    if _MODE.value == "compile" and not _TARGET.value:
        raise InputError("--mode=compile and --target, such as h200 or v5e:4x4, go together")
    # JAX and Orbax log their phases at INFO; what they log as errors they also raise.
    logging.set_verbosity(logging.FATAL)
    config = _configuration(_CONFIG.value, set_fields)
    # After the flags: importing JAX takes a second, which a typo shouldn't cost.
    import jax

    from mimetic_jax.analysis import looking, timing
    from mimetic_jax.analysis.plan import describe, on_target
    from mimetic_jax.base.chips import Target
    from mimetic_jax.command.progress import Events, Progress
    from mimetic_jax.host.memory import keep_freed_memory
    from mimetic_jax.train.cluster import preemption, processes
    from mimetic_jax.train.comparison import Comparison
    from mimetic_jax.train.store.files import path_of

    if _MODE.value == "fields":
        from mimetic_jax.analysis import fields

        print(fields.describe(config, others))
        return
    if _MODE.value == "compile":
        _compile(config, _TARGET.value)
        return
    target = Target.of(_TARGET.value) if _TARGET.value else None
    if target:  # as many virtual devices, before JAX computes anything
        jax.config.update("jax_platforms", "cpu")
        jax.config.update("jax_num_cpu_devices", target.count)
    keep_freed_memory()
    processes.join(_COORDINATOR.value, _NUM_PROCESSES.value, _PROCESS_ID.value, _DISTRIBUTED.value)
    workdir = path_of(_WORKDIR.value or f"runs/{config.name}")
    progress = Progress()
    events = Events(_TENSORBOARD.value) if _TENSORBOARD.value else None

    def on_metrics(run: Run, line: Mapping[str, Any]) -> None:
        progress.moved(run, line)
        if events:
            events.written(run, line)

    comparison = Comparison(config, progress.say, on_metrics=on_metrics)
    if _MODE.value == "plan":
        if not target:
            timing.check_images(comparison)
        print(describe(comparison, target), flush=True)
        time = on_target(comparison, target) if target else timing.estimate(comparison, _shorter())
        print(f"\n{time}")
        if not target and (seen := looking.describe(comparison)):
            print(f"\n{seen}")
        return
    if _MODE.value == "train":
        try:
            steps = [arm.program.steps for arm in comparison.arms.values()]
            for stage, folder in comparison.stages(workdir):
                with progress.of(stage, folder, later=len(config.seeds) * sum(steps)):
                    results = stage.train(folder)
        except preemption.Preempted as stopped:
            print(f"{stopped}: the same command continues", flush=True)
            sys.exit(preemption.EXIT_CODE)
        finally:
            if events:
                events.close()
        if processes.is_first():
            print(results)
            _report(stage, workdir, results)
        return
    trained = comparison.at_own_rates(workdir)
    if _MODE.value == "compare":
        print(trained.table(workdir))
    elif _MODE.value == "eval":
        print(trained.evaluate(workdir))
    else:
        analysis = importlib.import_module(f"mimetic_jax.analysis.{_WHAT.value}")
        print(analysis.analyze(trained, workdir))


def _shorter() -> str:
    """How to shorten a training run, by the arguments of its configuration."""
    sizes = shipped.values_of(
        str(_CONFIG.value), "epochs", "steps", "size", "length", "width", "depth"
    )
    smaller = ",".join(f"{name}={value}" for name, value in sizes.items())
    by = f"smaller arguments than {smaller}, " if smaller else ""
    return f"to shorten it, pass {by}fewer arms (init=NAME+NAME) or seeds (--config.seeds=0)"


def _report(comparison: Comparison, workdir: AnyPath, results: Results) -> None:
    """Say what a training run that has ended shows, and write the page of its workdir."""
    from mimetic_jax.analysis import report_page
    from mimetic_jax.train.verdicts import conclusions

    print("", *conclusions(list(results.arms.values())), sep="\n")
    try:
        print(report_page.analyze(comparison, workdir, _typed(sys.orig_argv)))
    except (InputError, OSError) as error:  # the training is done, and its table printed
        print(f"no {report_page.NAME}: {error}")


def _typed(words: Sequence[str]) -> str:
    """The command line as it was typed; an installed script is its interpreter's first argument.

    >>> _typed(["/env/bin/python", "/env/bin/mimetic", "train", "digits_vit"])
    'mimetic train digits_vit'
    """
    script = pathlib.PurePath(words[1]).name if len(words) > 1 else ""
    return shlex.join([script, *words[2:]] if script == "mimetic" else words)


def _compile(config: ConfigDict, name: str) -> None:
    """Print whether the steps of a config fit on hardware that needn't be here."""
    from mimetic_jax.analysis.compile import describe, devices
    from mimetic_jax.base.chips import Target
    from mimetic_jax.train.comparison import Comparison

    target = Target.of(name)
    comparison = Comparison(config, devices=devices(target))
    for text in describe(comparison, target):
        print(text, flush=True)


def usage() -> str:
    """Return the flags of main.py, and the configurations that come with the package."""
    return f"{usage_of.of_main()}\n\nconfigurations:\n{shipped.listing()}"


def _parse(argv: Sequence[str]) -> list[str]:
    """Parse the flags, and return what is left: the program, other words, and fields to set."""
    if not {"--help", "-help", "-h"}.isdisjoint(argv):
        print(f"{sys.modules['__main__'].__doc__}\n{usage()}")
        sys.exit(0)
    try:
        words = flags.FLAGS.read_flags_from_files(argv)  # fields may be in a --flagfile, too
        others, set_fields = shipped.separated([*map(shipped.in_full, words)])
        return [*flags.FLAGS(others), *set_fields]
    except flags.UnrecognizedFlagError as error:
        raise _unknown_flag(error.flagname) from error
    except flags.Error as error:
        raise InputError(innermost(error)) from error


def _configuration(given: str, set_fields: Sequence[str]) -> ConfigDict:
    """The configuration of --config, with fields set by flags."""
    config = shipped.load(given)
    _check_config(config)
    from mimetic_jax.command.assign import set_field

    for flag in set_fields:
        set_field(config, flag)
    return config


_MEANT = {"lr": "--rates", "learning_rate": "--rates", "batch_size": "--config.batch"}
"""Flags of other programs, and what they are here."""


def _unknown_flag(name: str) -> InputError:
    """Name the flag, or the field, that is nearest to an unknown flag."""
    from mimetic_jax.train.schema import default, leaves

    fields = {path.rpartition(".")[2]: f"--config.{path}" for path, _ in leaves(default())}
    written = [flag.written.partition("=")[0] for flag in usage_of.FLAGS]
    declared = {flag.strip("-").replace("-", "_"): flag for flag in written if "." not in flag}
    every = fields | declared | _MEANT
    nearest = difflib.get_close_matches(name, every, 1, cutoff=0.7)
    guess = f"; did you mean {every[nearest[0]]}?" if nearest else "."
    return InputError(
        f"unknown flag --{name}{guess} `mimetic train --help` lists the flags, `mimetic fields "
        "CONFIG` the fields"
    )


def _check_config(config: Any) -> None:
    """Check that a config file's `get_config` returns a configuration."""
    if not isinstance(config, ConfigDict):
        raise InputError(f"get_config of the config file returns {type(config).__name__}")
    if not {"task", "name", "model"} <= set(config):
        raise InputError(
            "the config has no task, name or model: start from configs.default.default()"
        )


def run() -> None:
    """Run `main` with the flags of this process; bad input ends in one line, not in a traceback."""
    sys.unraisablehook = _unraisable
    with reported(_leave):
        app.run(main, flags_parser=_parse)


def _unraisable(error: sys.UnraisableHookArgs) -> None:
    """Print an error that no caller gets, except those that follow one that is reported.

    When one array of a checkpoint can't be written, as on a full disk, Orbax closes the event loop
    at which the writes of the other arrays still report.
    """
    if str(error.exc_value) != "Event loop is closed":
        sys.__unraisablehook__(error)


def _leave(code: int) -> None:
    """End the other processes, which would wait for this one."""
    if processes := sys.modules.get("mimetic_jax.train.cluster.processes"):
        processes.leave(code)
